package main

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func (t task) bucket() jetstream.KeyValue {
	bucket, err := t.jetstream(t.connect()).KeyValue(context.Background(), t["bucket"])
	check(err)
	return bucket
}

func key(number int) string { return "key." + strconv.Itoa(number) }

func kvPut(t task) result {
	bucket, payload, forever, i := t.bucket(), t.payload(), context.Background(), 0
	return timed(t.number("count"), func() {
		_, err := bucket.Put(forever, key(i), payload)
		check(err)
		i++
	})
}

func kvGet(t task) result {
	bucket, keys, forever, i := t.bucket(), t.number("keys"), context.Background(), 0
	return timed(t.number("count"), func() {
		_, err := bucket.Get(forever, key(i%keys))
		check(err)
		i++
	})
}

func kvKeys(t task) result {
	bucket, count, passes := t.bucket(), t.number("count"), t.number("passes")
	awaitGo()
	cpu, begin := cpuSeconds(), time.Now()
	for range passes {
		left := count
		lister, err := bucket.ListKeys(context.Background())
		check(err)
		for range lister.Keys() {
			left--
		}
		check(all(left))
	}
	return rate(count*passes, begin, cpu)
}

// kvWatch reads all values that a bucket holds when the watch begins.
func kvWatch(t task) result {
	bucket, count, passes := t.bucket(), t.number("count"), t.number("passes")
	awaitGo()
	cpu, begin := cpuSeconds(), time.Now()
	for range passes {
		left, size := count, 0
		watcher, err := bucket.WatchAll(context.Background())
		check(err)
		for entry := range watcher.Updates() {
			if entry == nil {
				break
			}
			size += len(entry.Value())
			left--
		}
		check(all(left))
		check(watcher.Stop())
	}
	return rate(count*passes, begin, cpu)
}
