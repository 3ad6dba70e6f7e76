// Services of nats.go: a service that replies, and clients that send requests.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

var services []micro.Service

// serve starts a service of that name with the endpoints `<name>.echo`, and `<name>.no`, which fails.
func serve(nc *nats.Conn, name string) error {
	service, err := micro.AddService(nc, micro.Config{
		Name: name, Version: "2.1.0", Description: "of nats.go", Metadata: map[string]string{"by": "go"},
		StatsHandler: func(e *micro.Endpoint) any { return map[string]string{"endpoint": e.Name} },
	})
	if err != nil {
		return err
	}
	services = append(services, service)
	group := service.AddGroup(name)
	echo := micro.HandlerFunc(func(r micro.Request) { r.Respond(r.Data()) })
	if err = group.AddEndpoint("echo", echo); err != nil {
		return err
	}
	no := micro.HandlerFunc(func(r micro.Request) { r.Error("404", "no such order", []byte("more")) })
	return group.AddEndpoint("no", no, micro.WithEndpointQueueGroup("own"))
}

// discover sends a request to a control subject, and returns the reply as nats.go reads it.
func discover(nc *nats.Conn, subject string) (json.RawMessage, error) {
	msg, err := nc.Request(subject, nil, 10*time.Second)
	if err != nil {
		return nil, err
	}
	var kind struct {
		Type string `json:"type"`
	}
	if err = json.Unmarshal(msg.Data, &kind); err != nil {
		return nil, err
	}
	known := map[string]any{
		micro.PingResponseType: &micro.Ping{}, micro.InfoResponseType: &micro.Info{},
		micro.StatsResponseType: &micro.Stats{},
	}
	read, found := known[kind.Type]
	if !found {
		return nil, fmt.Errorf("unknown type %q", kind.Type)
	}
	decoder := json.NewDecoder(bytes.NewReader(msg.Data))
	decoder.DisallowUnknownFields()
	if err = decoder.Decode(read); err != nil {
		return nil, err
	}
	return json.Marshal(read)
}

// doService runs the operation, if it is one of services.
func doService(nc *nats.Conn, r request) (result answer, known bool, err error) {
	known = true
	switch r.Op {
	case "serve":
		err = serve(nc, r.Bucket)
	case "stop":
		for _, service := range services {
			service.Stop()
		}
		services = nil
	case "discover":
		result.Told, err = discover(nc, r.Key)
	case "call":
		var msg *nats.Msg
		if msg, err = nc.Request(r.Key, r.Value, 10*time.Second); err == nil {
			result.Entries = append(result.Entries, entry{Value: msg.Data})
			result.Headers = msg.Header
		}
	default:
		known = false
	}
	if err == nil {
		err = nc.Flush()
	}
	return
}
