// natsgo runs the jobs of the comparison with nats.go, and with the batches of orbit.go.
//
//	natsgo JOB ARGUMENTS [--ca FILE]
//
// The arguments are those of natsc.c, or of use_jsync.py for its other jobs. A job sets
// itself up, prints "ready", waits for a line on stdin, works, and prints one line of JSON.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type result map[string]float64

type job struct {
	arguments string
	run       func(task) result
}

var jobs = map[string]job{
	"publish":   {"url subject size count threads", publish},
	"read":      {"url subject size count", read},
	"readmany":  {"url subject size count subscriptions", readMany},
	"callbacks": {"url subject size count subscriptions", callbacks},
	"request":   {"url subject size count", request},
	"fetch":     {"url stream consumer count batch ack", fetch},
	"consume":   {"url stream consumer count batch ack handler", consume},
	"consumers": {"url stream consumer count batch ack consumers", consumers},
	"ordered":   {"url stream count batch", ordered},
	"next":      {"url stream consumer count", next},
	"publisher": {"url subject size count window chunk", publisher},
	"single":    {"url subject size count", single},
	"ingest":    {"url subject size count flow outstanding chunk", ingest},
	"atomic":    {"url subject size count chunk", atomicBatches},
	"kvput":     {"url bucket size count", kvPut},
	"kvget":     {"url bucket keys count", kvGet},
	"kvkeys":    {"url bucket count passes", kvKeys},
	"kvwatch":   {"url bucket count passes", kvWatch},
	"serve":     {"url subject workers delay", serve},
	"call":      {"url subject size count callers", call},
	"shared":    {"url call target size count threads", shared},

	"objectput":  {"url stream size count", objects("put")},
	"objectget":  {"url stream size count", objects("get")},
	"objectopen": {"url stream size count", objects("open")},
}

// task holds the arguments of a job by name.
type task map[string]string

func (t task) number(name string) int {
	n, err := strconv.Atoi(t[name])
	check(err)
	return n
}

func (t task) payload() []byte { return []byte(strings.Repeat("x", t.number("size"))) }

func (t task) connect() *nats.Conn {
	var options []nats.Option
	if t["ca"] != "" {
		options = append(options, nats.RootCAs(t["ca"]))
	}
	nc, err := nats.Connect(t["url"], options...)
	check(err)
	return nc
}

func (t task) jetstream(nc *nats.Conn, options ...jetstream.JetStreamOpt) jetstream.JetStream {
	js, err := jetstream.New(nc, options...)
	check(err)
	return js
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func all(left int) error {
	if left != 0 {
		return fmt.Errorf("%d are missing", left)
	}
	return nil
}

func awaitGo() {
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		os.Exit(0)
	}
}

// cpuSeconds returns the CPU time of all threads, user and system.
func cpuSeconds() float64 {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func rate(count int, begin time.Time, cpu float64) result {
	return result{
		"count":   float64(count),
		"seconds": time.Since(begin).Seconds(),
		"cpu":     cpuSeconds() - cpu,
	}
}

// timed does one thing `count` times, after a tenth as many to warm up, and adds its p50 and p99.
func timed(count int, one func()) result {
	awaitGo()
	for range count / 10 {
		one()
	}
	spent := make([]float64, 0, count)
	cpu, start := cpuSeconds(), time.Now()
	for range count {
		begin := time.Now()
		one()
		spent = append(spent, float64(time.Since(begin).Nanoseconds())/1e3)
	}
	found := rate(count, start, cpu)
	slices.Sort(spent)
	last := float64(len(spent) - 1)
	found["latency_p50"] = spent[int(0.5*last+0.5)]
	found["latency_p99"] = spent[int(0.99*last+0.5)]
	return found
}

func version() {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		switch module.Path {
		case "github.com/nats-io/nats.go":
			fmt.Printf("%s, %s", strings.TrimPrefix(module.Version, "v"), info.GoVersion)
		case "github.com/synadia-io/orbit.go/jetstreamext":
			fmt.Printf(", orbit.go jetstreamext %s\n", strings.TrimPrefix(module.Version, "v"))
		}
	}
}

func main() {
	arguments := os.Args[1:]
	if len(arguments) == 1 && arguments[0] == "version" {
		version()
		return
	}
	given := task{}
	if n := len(arguments); n > 2 && arguments[n-2] == "--ca" {
		given["ca"] = arguments[n-1]
		arguments = arguments[:n-2]
	}
	if len(arguments) > 0 {
		chosen := jobs[arguments[0]]
		names := strings.Fields(chosen.arguments)
		if chosen.run != nil && len(names) == len(arguments)-1 {
			for i, name := range names {
				given[name] = arguments[i+1]
			}
			check(json.NewEncoder(os.Stdout).Encode(chosen.run(given)))
			return
		}
	}
	fmt.Fprintln(os.Stderr, "natsgo: see main.go for the jobs and their arguments")
	os.Exit(2)
}
