package main

import (
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

// atomicBatches of `chunk` messages: at once, or added one by one (-1).
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
