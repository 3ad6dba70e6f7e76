package main

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const minute = time.Minute

func publish(t task) result {
	nc, payload, threads := t.connect(), t.payload(), t.number("threads")
	subject, count := t["subject"], t.number("count")
	awaitGo()
	cpu, begin := cpuSeconds(), time.Now()
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			for range count / threads {
				check(nc.Publish(subject, payload))
			}
		})
	}
	all.Wait()
	check(nc.FlushTimeout(minute))
	return rate(count, begin, cpu)
}

func read(t task) result {
	nc, count, size := t.connect(), t.number("count"), 0
	var begin time.Time
	var cpu float64
	done, left := make(chan result, 1), count
	sub, err := nc.Subscribe(t["subject"], func(msg *nats.Msg) {
		if left == count {
			begin = time.Now()
		}
		size += len(msg.Data)
		if left--; left == 0 {
			done <- rate(count, begin, cpu)
		}
	})
	check(err)
	check(sub.SetPendingLimits(-1, -1))
	check(nc.Flush())
	awaitGo()
	cpu = cpuSeconds()
	return <-done
}

// readMany reads messages that arrive for many subscriptions in turn.
func readMany(t task) result {
	nc, subscriptions := t.connect(), t.number("subscriptions")
	all, each, size := make([]*nats.Subscription, subscriptions), t.number("count")/subscriptions, 0
	for i := range all {
		sub, err := nc.SubscribeSync(t["subject"] + "." + strconv.Itoa(i))
		check(err)
		check(sub.SetPendingLimits(-1, -1))
		all[i] = sub
	}
	check(nc.Flush())
	awaitGo()
	var begin time.Time
	cpu := cpuSeconds()
	for _, sub := range all {
		for range each {
			msg, err := sub.NextMsg(minute)
			check(err)
			if begin.IsZero() {
				begin = time.Now()
			}
			size += len(msg.Data)
		}
	}
	return rate(each*subscriptions, begin, cpu)
}

// callbacks receives messages by the callbacks of many subscriptions.
func callbacks(t task) result {
	nc, subscriptions := t.connect(), t.number("subscriptions")
	last := int64(t.number("count") / subscriptions * subscriptions)
	var number atomic.Int64
	var begin time.Time
	ended := make(chan struct{})
	for i := range subscriptions {
		sub, err := nc.Subscribe(t["subject"]+"."+strconv.Itoa(i), func(*nats.Msg) {
			switch number.Add(1) {
			case 1:
				begin = time.Now()
			case last:
				close(ended)
			}
		})
		check(err)
		check(sub.SetPendingLimits(-1, -1))
	}
	check(nc.Flush())
	awaitGo()
	cpu := cpuSeconds()
	<-ended
	found := rate(int(last), begin, cpu)
	found["threads"] = status("Threads:")
	found["resident_mib"] = status("VmRSS:") / 1024
	return found
}

// status returns a number of this process.
func status(name string) float64 {
	text, err := os.ReadFile("/proc/self/status")
	check(err)
	_, after, _ := strings.Cut(string(text), name)
	number, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
	check(err)
	return number
}

func request(t task) result {
	nc, payload, subject := t.connect(), t.payload(), t["subject"]
	return timed(t.number("count"), func() {
		_, err := nc.Request(subject, payload, 5*time.Second)
		check(err)
	})
}
