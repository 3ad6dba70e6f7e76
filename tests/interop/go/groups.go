// Members of consumer groups of orbit.go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/pcgroups"
)

// The arguments of a group operation, and the messages a member has handled since the last request.
type group struct {
	Stream   string                   `json:"stream"`
	Name     string                   `json:"name"`
	Member   string                   `json:"member"`
	Members  []string                 `json:"members"`
	Mappings []pcgroups.MemberMapping `json:"mappings"`
	Count    uint                     `json:"count"`
	Filter   string                   `json:"filter"`
	Indexes  []int                    `json:"indexes"`
	Sleep    int                      `json:"sleep"` // of the handler, in milliseconds
}

// handled is a message that a member has handled, with the time in Unix nanoseconds.
type handled struct {
	Subject string `json:"subject"`
	Data    string `json:"data"`
	Begun   int64  `json:"begun"`
	Ended   int64  `json:"ended"`
}

var (
	lock    sync.Mutex
	seen    []handled
	members = map[string]pcgroups.ConsumerGroupConsumeContext{}
)

func handle(sleep int) func(jetstream.Msg) {
	return func(msg jetstream.Msg) {
		begun := time.Now().UnixNano()
		time.Sleep(time.Duration(sleep) * time.Millisecond)
		lock.Lock()
		seen = append(seen, handled{msg.Subject(), string(msg.Data()), begun, time.Now().UnixNano()})
		lock.Unlock()
		_ = msg.Ack()
	}
}

func doGroup(ctx context.Context, js jetstream.JetStream, op string, g group) (told json.RawMessage, err error) {
	var result any
	config := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1}
	switch strings.TrimPrefix(op, "group_") {
	case "create_elastic":
		_, err = pcgroups.CreateElastic(ctx, js, g.Stream, g.Name, g.Count, g.Filter, g.Indexes, 0, 0)
	case "create_static":
		_, err = pcgroups.CreateStatic(ctx, js, g.Stream, g.Name, g.Count, g.Filter, g.Members, g.Mappings)
	case "elastic_config":
		result, err = pcgroups.GetElasticConsumerGroupConfig(ctx, js, g.Stream, g.Name)
	case "static_config":
		result, err = pcgroups.GetStaticConsumerGroupConfig(ctx, js, g.Stream, g.Name)
	case "add":
		_, err = pcgroups.AddMembers(ctx, js, g.Stream, g.Name, g.Members)
	case "drop":
		_, err = pcgroups.DeleteMembers(ctx, js, g.Stream, g.Name, g.Members)
	case "map":
		err = pcgroups.SetMemberMappings(ctx, js, g.Stream, g.Name, g.Mappings)
	case "list":
		result, err = pcgroups.ListElasticConsumerGroups(ctx, js, g.Stream)
	case "active":
		result, err = pcgroups.ListElasticActiveMembers(ctx, js, g.Stream, g.Name)
	case "filters":
		result = pcgroups.GeneratePartitionFilters(g.Members, g.Count, g.Mappings, g.Member)
	case "step_down":
		err = pcgroups.ElasticMemberStepDown(ctx, js, g.Stream, g.Name, g.Member)
	case "delete_elastic":
		err = pcgroups.DeleteElastic(ctx, js, g.Stream, g.Name)
	case "delete_static":
		err = pcgroups.DeleteStatic(ctx, js, g.Stream, g.Name)
	case "join_elastic": // the watch of the configuration ends with the context
		ctx = context.Background()
		members[g.Member], err = pcgroups.ElasticConsume(ctx, js, g.Stream, g.Name, g.Member, handle(g.Sleep), config)
	case "join_static":
		ctx = context.Background()
		members[g.Member], err = pcgroups.StaticConsume(ctx, js, g.Stream, g.Name, g.Member, handle(g.Sleep), config)
	case "stop":
		members[g.Member].Stop()
	case "done": // the result of the member
		select {
		case ended := <-members[g.Member].Done():
			if ended != nil {
				result = ended.Error()
			} else {
				result = "stopped"
			}
		case <-ctx.Done():
			err = errors.New("still at work")
		}
	case "seen":
		lock.Lock()
		result, seen = seen, nil
		lock.Unlock()
	}
	if err == nil {
		told, err = json.Marshal(result)
	}
	return
}
