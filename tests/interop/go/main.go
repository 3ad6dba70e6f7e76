// Key-value, objects, services, consumer groups and counters of nats.go. Each line of input is a
// JSON request, and each line of output a JSON reply.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type request struct {
	Op     string                   `json:"op"`
	Config jetstream.KeyValueConfig `json:"config"`
	Domain string                   `json:"domain"`
	Bucket string                   `json:"bucket"`
	Key    string                   `json:"key"`
	Value  []byte                   `json:"value"`
	Last   uint64                   `json:"last"`

	Store  jetstream.ObjectStoreConfig `json:"store"`
	Object object                      `json:"object"`

	Group group `json:"group"`

	Counter counter `json:"counter"`
}

type entry struct {
	Key       string `json:"key"`
	Value     []byte `json:"value"`
	Revision  uint64 `json:"revision"`
	Delta     uint64 `json:"delta"`
	Created   int64  `json:"created"`
	Operation string `json:"operation"`
}

type answer struct {
	Error    string  `json:"error,omitempty"`
	Revision uint64  `json:"revision,omitempty"`
	Entries  []entry `json:"entries"`

	Value   []byte   `json:"value"`
	Objects []object `json:"objects"`

	Told    json.RawMessage `json:"told,omitempty"`
	Headers nats.Header     `json:"headers,omitempty"`
}

func entryOf(e jetstream.KeyValueEntry) entry {
	operations := map[jetstream.KeyValueOp]string{
		jetstream.KeyValuePut: "PUT", jetstream.KeyValueDelete: "DEL", jetstream.KeyValuePurge: "PURGE",
	}
	return entry{e.Key(), e.Value(), e.Revision(), e.Delta(), e.Created().UnixMicro(), operations[e.Operation()]}
}

func do(ctx context.Context, nc *nats.Conn, r request) (result answer, err error) {
	if result, known, err := doService(nc, r); known {
		return result, err
	}
	var js jetstream.JetStream
	if r.Domain == "" {
		js, err = jetstream.New(nc)
	} else {
		js, err = jetstream.NewWithDomain(nc, r.Domain)
	}
	if err != nil {
		return
	}
	if strings.HasPrefix(r.Op, "group_") {
		result.Told, err = doGroup(ctx, js, r.Op, r.Group)
		return
	}
	if strings.HasPrefix(r.Op, "counter_") {
		result.Told, err = doCounter(ctx, js, r.Op, r.Counter)
		return
	}
	if r.Op == "create_bucket" {
		_, err = js.CreateKeyValue(ctx, r.Config)
		return
	}
	if strings.HasSuffix(r.Op, "_store") || strings.Contains(r.Op, "object") {
		return doObject(ctx, js, r)
	}
	kv, err := js.KeyValue(ctx, r.Bucket)
	if err != nil {
		return
	}
	switch r.Op {
	case "put":
		result.Revision, err = kv.Put(ctx, r.Key, r.Value)
	case "create":
		result.Revision, err = kv.Create(ctx, r.Key, r.Value)
	case "update":
		result.Revision, err = kv.Update(ctx, r.Key, r.Value, r.Last)
	case "delete":
		err = kv.Delete(ctx, r.Key)
	case "purge":
		err = kv.Purge(ctx, r.Key)
	case "get":
		var e jetstream.KeyValueEntry
		if e, err = kv.Get(ctx, r.Key); err == nil {
			result.Entries = append(result.Entries, entryOf(e))
		}
	case "history", "watch":
		options := []jetstream.WatchOpt{}
		if r.Op == "history" {
			options = append(options, jetstream.IncludeHistory())
		}
		var watcher jetstream.KeyWatcher
		if watcher, err = kv.Watch(ctx, r.Key, options...); err != nil {
			return
		}
		defer watcher.Stop()
		for e := range watcher.Updates() {
			if e == nil {
				break
			}
			result.Entries = append(result.Entries, entryOf(e))
		}
	}
	return
}

func main() {
	nc, err := nats.Connect(os.Args[1])
	if err != nil {
		panic(err)
	}
	defer nc.Close()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		result, err := do(ctx, nc, r)
		cancel()
		if err != nil {
			result.Error = err.Error()
		}
		line, _ := json.Marshal(result)
		os.Stdout.Write(append(line, '\n'))
	}
}
