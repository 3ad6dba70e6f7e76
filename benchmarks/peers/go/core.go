package main

import (
	"strconv"
	"sync"
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

func request(t task) result {
	nc, payload, subject := t.connect(), t.payload(), t["subject"]
	return timed(t.number("count"), func() {
		_, err := nc.Request(subject, payload, 5*time.Second)
		check(err)
	})
}
