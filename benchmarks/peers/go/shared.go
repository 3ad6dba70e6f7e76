package main

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"time"
)

// shared calls from goroutines that share a connection. Each waits for its answer.
func shared(t task) result {
	nc, payload, threads := t.connect(), t.payload(), t.number("threads")
	js, forever, name := t.jetstream(nc), context.Background(), t["target"]
	var one func(thread int) error
	switch t["call"] {
	case "publish":
		one = func(int) error { _, err := js.Publish(forever, name, payload); return err }
	case "request":
		one = func(int) error { _, err := nc.Request(name, payload, minute); return err }
	default:
		bucket, err := js.KeyValue(forever, name)
		check(err)
		one = func(thread int) error { _, err := bucket.Get(forever, key(thread)); return err }
		if t["call"] == "put" {
			one = func(thread int) error { _, err := bucket.Put(forever, key(thread), payload); return err }
		}
	}
	run := func(count int) []float64 {
		spent, all := make([][]float64, threads), sync.WaitGroup{}
		for thread := range threads {
			all.Go(func() {
				for range count {
					begin := time.Now()
					check(one(thread))
					spent[thread] = append(spent[thread], float64(time.Since(begin).Nanoseconds())/1e3)
				}
			})
		}
		all.Wait()
		return slices.Concat(spent...)
	}
	each := t.number("count") / threads
	awaitGo()
	run(each/10 + 1)
	switches, cpu, begin := contextSwitches(), cpuSeconds(), time.Now()
	spent := run(each)
	found := rate(len(spent), begin, cpu)
	found["switches"] = (contextSwitches() - switches) / float64(len(spent))
	slices.Sort(spent)
	last := float64(len(spent) - 1)
	found["latency_p50"] = spent[int(0.5*last+0.5)]
	found["latency_p99"] = spent[int(0.99*last+0.5)]
	return found
}

func contextSwitches() float64 {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Nvcsw + u.Nivcsw)
}
