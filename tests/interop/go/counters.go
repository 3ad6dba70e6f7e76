// Counters of orbit.go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/counters"
)

type counter struct {
	Stream  string `json:"stream"`
	Subject string `json:"subject"`
	Amount  string `json:"amount"`
}

func doCounter(ctx context.Context, js jetstream.JetStream, op string, c counter) (json.RawMessage, error) {
	stream, err := js.Stream(ctx, c.Stream)
	if err != nil {
		return nil, err
	}
	counted, err := counters.NewCounterFromStream(js, stream)
	if err != nil {
		return nil, err
	}
	switch op {
	case "counter_add":
		amount, ok := new(big.Int).SetString(c.Amount, 10)
		if !ok {
			return nil, fmt.Errorf("not a number: %s", c.Amount)
		}
		value, err := counted.Add(ctx, c.Subject, amount)
		if err != nil {
			return nil, err
		}
		return json.Marshal(value.String())
	case "counter_get":
		entry, err := counted.Get(ctx, c.Subject)
		if err != nil {
			return nil, err
		}
		sources := map[string]map[string]string{}
		for stream, subjects := range entry.Sources {
			sources[stream] = map[string]string{}
			for subject, value := range subjects {
				sources[stream][subject] = value.String()
			}
		}
		return json.Marshal(map[string]any{"value": entry.Value.String(), "sources": sources})
	}
	return nil, fmt.Errorf("unknown: %s", op)
}
