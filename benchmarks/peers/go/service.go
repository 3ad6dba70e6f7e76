package main

import (
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// serve runs a service that echoes after `delay` microseconds, until a message on `<subject>.stop`.
func serve(t task) result {
	nc, delay := t.connect(), time.Duration(t.number("delay"))*time.Microsecond
	service, err := micro.AddService(nc, micro.Config{Name: "bench", Version: "1.0.0"})
	check(err)
	answer := func(request micro.Request) {
		if delay > 0 {
			time.Sleep(delay)
		}
		check(request.Respond(request.Data()))
	}
	handler := answer
	if t.number("workers") > 1 { // micro itself handles one request at a time
		free := make(chan struct{}, t.number("workers"))
		handler = func(request micro.Request) {
			free <- struct{}{}
			go func() {
				answer(request)
				<-free
			}()
		}
	}
	check(service.AddEndpoint("echo", micro.HandlerFunc(handler), micro.WithEndpointSubject(t["subject"])))
	stop, err := nc.SubscribeSync(t["subject"] + ".stop")
	check(err)
	check(nc.Flush())
	awaitGo()
	cpu, begin := cpuSeconds(), time.Now()
	_, err = stop.NextMsg(3 * minute)
	check(err)
	return rate(service.Stats().Endpoints[0].NumRequests, begin, cpu)
}

// call runs many callers, eight to a connection. Each sends one request at a time.
func call(t task) result {
	callers, payload, subject := t.number("callers"), t.payload(), t["subject"]
	each := t.number("count") / callers
	connections := make([]*nats.Conn, (callers+7)/8)
	for i := range connections {
		connections[i] = t.connect()
	}
	run := func(count int) []float64 {
		spent, all := make([][]float64, callers), sync.WaitGroup{}
		for i := range callers {
			all.Go(func() {
				nc := connections[i/8]
				for range count {
					begin := time.Now()
					_, err := nc.Request(subject, payload, minute)
					check(err)
					spent[i] = append(spent[i], float64(time.Since(begin).Nanoseconds())/1e3)
				}
			})
		}
		all.Wait()
		return slices.Concat(spent...)
	}
	awaitGo()
	run(max(1, each/10))
	cpu, begin := cpuSeconds(), time.Now()
	spent := run(each)
	found := rate(len(spent), begin, cpu)
	slices.Sort(spent)
	last := float64(len(spent) - 1)
	found["latency_p50"] = spent[int(0.5*last+0.5)]
	found["latency_p99"] = spent[int(0.99*last+0.5)]
	return found
}
