package main

import (
	"bytes"
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

func publisher(t task) result {
	nc, subject, payload := t.connect(), t["subject"], t.payload()
	js := t.jetstream(nc, jetstream.WithPublishAsyncMaxPending(t.number("window")))
	count := t.number("count")
	awaitGo()
	cpu, begin := cpuSeconds(), time.Now()
	for range count {
		_, err := js.PublishAsync(subject, payload, jetstream.WithStallWait(minute))
		check(err)
	}
	<-js.PublishAsyncComplete()
	return rate(count, begin, cpu)
}

func single(t task) result {
	nc, subject, payload := t.connect(), t["subject"], t.payload()
	js, forever := t.jetstream(nc), context.Background()
	return timed(t.number("count"), func() {
		_, err := js.Publish(forever, subject, payload)
		check(err)
	})
}

func ingest(t task) result {
	nc, subject, payload := t.connect(), t["subject"], t.payload()
	js, count := t.jetstream(nc), t.number("count")
	awaitGo()
	cpu, begin := cpuSeconds(), time.Now()
	batch, err := jetstreamext.NewFastPublisher(js, jetstreamext.FastPublishFlowControl{
		Flow:               uint16(t.number("flow")),
		MaxOutstandingAcks: uint16(t.number("outstanding")),
		AckTimeout:         minute,
	})
	check(err)
	for range count {
		_, err := batch.Add(subject, payload)
		check(err)
	}
	_, err = batch.Close(context.Background())
	check(err)
	return rate(count, begin, cpu)
}

// atomicBatches publishes atomic batches of `chunk` messages, at once or one by one (-1).
func atomicBatches(t task) result {
	nc, subject, payload := t.connect(), t["subject"], t.payload()
	js, forever := t.jetstream(nc), context.Background()
	chunk := t.number("chunk")
	size := max(chunk, -chunk)
	batches := t.number("count") / size
	awaitGo()
	cpu, begin := cpuSeconds(), time.Now()
	for range batches {
		if chunk > 0 {
			messages := make([]*nats.Msg, size)
			for i := range messages {
				messages[i] = nats.NewMsg(subject)
				messages[i].Data = payload
			}
			_, err := jetstreamext.PublishMsgBatch(forever, js, messages)
			check(err)
			continue
		}
		batch, err := jetstreamext.NewBatchPublisher(js)
		check(err)
		for range size - 1 {
			check(batch.Add(subject, payload))
		}
		_, err = batch.Commit(forever, subject, payload)
		check(err)
	}
	return rate(batches*size, begin, cpu)
}

// objects puts objects, gets them whole, or opens them and reads the first byte.
func objects(kind string) func(task) result {
	return func(t task) result {
		js, forever := t.jetstream(t.connect()), context.Background()
		store, err := js.ObjectStore(forever, t["stream"])
		check(err)
		payload := t.payload()
		return timed(t.number("count"), func() {
			switch kind {
			case "put":
				_, err := store.Put(forever, jetstream.ObjectMeta{Name: "object"}, bytes.NewReader(payload))
				check(err)
			case "get":
				_, err := store.GetBytes(forever, "object")
				check(err)
			case "open":
				found, err := store.Get(forever, "object")
				check(err)
				_, err = found.Read(make([]byte, 1))
				check(err)
				check(found.Close())
			}
		})
	}
}
