package main

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func (t task) consumer(js jetstream.JetStream, name string) jetstream.Consumer {
	consumer, err := js.Consumer(context.Background(), t["stream"], name)
	check(err)
	return consumer
}

func fetch(t task) result {
	nc := t.connect()
	consumer := t.consumer(t.jetstream(nc), t["consumer"])
	count, batch, ack := t.number("count"), t.number("batch"), t.number("ack") != 0
	awaitGo()
	cpu, begin, done, size := cpuSeconds(), time.Now(), 0, 0
	for done < count {
		fetched, err := consumer.Fetch(batch, jetstream.FetchMaxWait(10*time.Second))
		check(err)
		for msg := range fetched.Messages() {
			size += len(msg.Data())
			done++
			if ack {
				check(msg.Ack())
			}
		}
		check(fetched.Error())
	}
	check(nc.FlushTimeout(minute))
	return rate(done, begin, cpu)
}

// consume reads by Consume with a handler, or by the iterator of Messages.
func consume(t task) result {
	nc := t.connect()
	consumer := t.consumer(t.jetstream(nc), t["consumer"])
	if t.number("handler") != 0 {
		return handle(t, nc, consumer)
	}
	count, ack := t.number("count"), t.number("ack") != 0
	awaitGo()
	cpu, begin, size := cpuSeconds(), time.Now(), 0
	messages, err := consumer.Messages(jetstream.PullMaxMessages(t.number("batch")))
	check(err)
	for range count {
		msg, err := messages.Next()
		check(err)
		size += len(msg.Data())
		if ack {
			check(msg.Ack())
		}
	}
	check(nc.FlushTimeout(minute))
	found := rate(count, begin, cpu)
	messages.Stop()
	return found
}

// consumers runs several on one connection, which share the messages evenly.
func consumers(t task) result {
	nc := t.connect()
	js := t.jetstream(nc)
	all := make([]jetstream.Consumer, t.number("consumers"))
	for i := range all {
		all[i] = t.consumer(js, t["consumer"]+strconv.Itoa(i))
	}
	return handle(t, nc, all...)
}

func ordered(t task) result {
	nc := t.connect()
	js := t.jetstream(nc)
	t["ack"] = "0"
	consumer, err := js.OrderedConsumer(
		context.Background(), t["stream"], jetstream.OrderedConsumerConfig{})
	check(err)
	return handle(t, nc, consumer)
}

func handle(t task, nc *nats.Conn, all ...jetstream.Consumer) result {
	each, ack := t.number("count")/len(all), t.number("ack") != 0
	var working atomic.Int32
	working.Store(int32(len(all)))
	done, running := make(chan struct{}), []jetstream.ConsumeContext{}
	awaitGo()
	cpu, begin := cpuSeconds(), time.Now()
	for _, consumer := range all {
		left, size := each, 0
		consuming, err := consumer.Consume(func(msg jetstream.Msg) {
			if left == 0 {
				return // the pull delivered more than needed
			}
			size += len(msg.Data())
			if ack {
				check(msg.Ack())
			}
			if left--; left == 0 && working.Add(-1) == 0 {
				close(done)
			}
		}, jetstream.PullMaxMessages(t.number("batch")))
		check(err)
		running = append(running, consuming)
	}
	<-done
	check(nc.FlushTimeout(minute))
	found := rate(each*len(all), begin, cpu)
	for _, consuming := range running {
		consuming.Stop()
	}
	return found
}

func next(t task) result {
	nc := t.connect()
	consumer := t.consumer(t.jetstream(nc), t["consumer"])
	return timed(t.number("count"), func() {
		_, err := consumer.Next()
		check(err)
	})
}
