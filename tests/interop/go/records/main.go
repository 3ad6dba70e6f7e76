// Operations of nats.go and orbit.go. Each line of input is a JSON request, and each line of output
// its reply. tests/interop/clients.py lists the operations.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/synadia-io/orbit.go/kvcodec"
	"github.com/synadia-io/orbit.go/pcgroups"
)

type request struct {
	Op          string            `json:"op"`
	Bucket      string            `json:"bucket"`
	Codec       string            `json:"codec"`
	History     uint8             `json:"history"`
	MarkerTTL   int               `json:"marker_ttl"`
	Description string            `json:"description"`
	Metadata    map[string]string `json:"metadata"`
	Key         string            `json:"key"`
	Value       []byte            `json:"value"`
	TTL         int               `json:"ttl"`
	Last        uint64            `json:"last"`
	Name        string            `json:"name"`
	NewName     string            `json:"new_name"`
	Target      string            `json:"target"`
	ChunkSize   uint32            `json:"chunk_size"`
	Subject     string            `json:"subject"`
	Stream      string            `json:"stream"`
	Seq         uint64            `json:"seq"`
	Schedule    string            `json:"schedule"`
	Headers     json.RawMessage   `json:"headers"`
	Filters     map[string][]int  `json:"filters"`
	Partitions  uint              `json:"partitions"`
	Members     []string          `json:"members"`
	Mappings    map[string][]int  `json:"mappings"`
}

type reply map[string]any

type program struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	services map[string]micro.Service
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func entryOf(e jetstream.KeyValueEntry) reply {
	operations := map[jetstream.KeyValueOp]string{
		jetstream.KeyValuePut: "PUT", jetstream.KeyValueDelete: "DEL", jetstream.KeyValuePurge: "PURGE",
	}
	return reply{"key": e.Key(), "value": e.Value(), "revision": e.Revision(), "operation": operations[e.Operation()]}
}

func infoOf(o *jetstream.ObjectInfo) reply {
	info := reply{
		"name": o.Name, "description": o.Description, "headers": o.Headers, "metadata": o.Metadata,
		"size": o.Size, "chunks": o.Chunks, "digest": o.Digest, "deleted": o.Deleted, "link": nil,
	}
	if o.Headers == nil {
		info["headers"] = reply{}
	}
	if o.Metadata == nil {
		info["metadata"] = reply{}
	}
	if o.Opts != nil && o.Opts.Link != nil {
		info["link"] = []string{o.Opts.Link.Bucket, o.Opts.Link.Name}
	}
	return info
}

func (p *program) keys(ctx context.Context, r request) (result reply, err error) {
	if r.Op == "kv_create" {
		_, err = p.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: r.Bucket, History: r.History, Description: r.Description, Metadata: r.Metadata,
			LimitMarkerTTL: seconds(r.MarkerTTL), Storage: jetstream.MemoryStorage,
		})
		return
	}
	kv, err := p.js.KeyValue(ctx, r.Bucket)
	if err != nil {
		return
	}
	switch r.Codec {
	case "base64":
		kv = kvcodec.NewForKey(kv, kvcodec.Base64Codec())
	case "path":
		kv = kvcodec.NewForKey(kv, kvcodec.PathCodec())
	}
	var revision uint64
	switch r.Op {
	case "kv_put":
		revision, err = kv.Put(ctx, r.Key, r.Value)
		result = reply{"revision": revision}
	case "kv_insert":
		var options []jetstream.KVCreateOpt
		if r.TTL > 0 {
			options = append(options, jetstream.KeyTTL(seconds(r.TTL)))
		}
		revision, err = kv.Create(ctx, r.Key, r.Value, options...)
		result = reply{"revision": revision}
	case "kv_update":
		revision, err = kv.Update(ctx, r.Key, r.Value, r.Last)
		result = reply{"revision": revision}
	case "kv_delete":
		err = kv.Delete(ctx, r.Key)
	case "kv_purge":
		var options []jetstream.KVDeleteOpt
		if r.TTL > 0 {
			options = append(options, jetstream.PurgeTTL(seconds(r.TTL)))
		}
		err = kv.Purge(ctx, r.Key, options...)
	case "kv_get":
		var found jetstream.KeyValueEntry
		if found, err = kv.Get(ctx, r.Key); err == nil {
			result = reply{"entry": entryOf(found)}
		}
	case "kv_history":
		var found []jetstream.KeyValueEntry
		found, err = kv.History(ctx, r.Key)
		entries := []reply{}
		for _, each := range found {
			entries = append(entries, entryOf(each))
		}
		result = reply{"entries": entries}
	case "kv_keys":
		var found []string
		found, err = kv.Keys(ctx)
		result = reply{"keys": found}
	case "kv_status":
		var status jetstream.KeyValueStatus
		if status, err = kv.Status(ctx); err == nil {
			result = reply{"history": status.History(), "values": status.Values()}
		}
	}
	return
}

func (p *program) objects(ctx context.Context, r request) (result reply, err error) {
	if r.Op == "obj_create" {
		_, err = p.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: r.Bucket, Description: r.Description, Metadata: r.Metadata, Storage: jetstream.MemoryStorage,
		})
		return
	}
	store, err := p.js.ObjectStore(ctx, r.Bucket)
	if err != nil {
		return
	}
	var info *jetstream.ObjectInfo
	switch r.Op {
	case "obj_put":
		headers := map[string][]string{}
		if err = json.Unmarshal(r.Headers, &headers); err != nil {
			return
		}
		_, err = store.Put(ctx, jetstream.ObjectMeta{
			Name: r.Name, Description: r.Description, Metadata: r.Metadata, Headers: nats.Header(headers),
			Opts: &jetstream.ObjectMetaOptions{ChunkSize: r.ChunkSize},
		}, bytes.NewReader(r.Value))
	case "obj_get":
		var data []byte
		data, err = store.GetBytes(ctx, r.Name)
		result = reply{"value": data}
	case "obj_info":
		if info, err = store.GetInfo(ctx, r.Name); err == nil {
			result = reply{"info": infoOf(info)}
		}
	case "obj_list":
		var found []*jetstream.ObjectInfo
		found, err = store.List(ctx)
		names := []string{}
		for _, each := range found {
			names = append(names, each.Name)
		}
		result = reply{"names": names}
	case "obj_update":
		name := r.NewName
		if name == "" {
			name = r.Name
		}
		err = store.UpdateMeta(ctx, r.Name, jetstream.ObjectMeta{Name: name, Description: r.Description})
	case "obj_delete":
		err = store.Delete(ctx, r.Name)
	case "obj_link":
		if info, err = store.GetInfo(ctx, r.Target); err == nil {
			_, err = store.AddLink(ctx, r.Name, info)
		}
	case "obj_link_store":
		var target jetstream.ObjectStore
		if target, err = p.js.ObjectStore(ctx, r.Target); err == nil {
			_, err = store.AddBucketLink(ctx, r.Name, target)
		}
	}
	return
}

func (p *program) serve(r request) (result reply, err error) {
	switch r.Op {
	case "svc_start":
		var service micro.Service
		service, err = micro.AddService(p.nc, micro.Config{
			Name: r.Name, Version: "1.2.3", Description: r.Description, Metadata: r.Metadata,
		})
		if err != nil {
			return
		}
		p.services[r.Name] = service
		upper := micro.HandlerFunc(func(asked micro.Request) {
			if string(asked.Data()) == "fail" {
				asked.Error("422", "bad input", nil)
				return
			}
			asked.Respond(bytes.ToUpper(asked.Data()), micro.WithHeaders(asked.Headers()))
		})
		metadata := micro.WithEndpointMetadata(map[string]string{"of": "endpoint"})
		if err = service.AddGroup(r.Name).AddEndpoint("upper", upper, metadata); err == nil {
			err = p.nc.Flush()
		}
	case "svc_stop":
		err = p.services[r.Name].Stop()
	case "svc_call":
		var msg *nats.Msg
		if msg, err = p.nc.Request(r.Subject, r.Value, seconds(10)); err == nil {
			result = reply{
				"value": msg.Data, "code": msg.Header.Get(micro.ErrorCodeHeader),
				"description": msg.Header.Get(micro.ErrorHeader),
			}
		}
	case "svc_verbs":
		result = reply{}
		kinds := map[micro.Verb]any{
			micro.PingVerb: &micro.Ping{}, micro.InfoVerb: &micro.Info{}, micro.StatsVerb: &micro.Stats{},
		}
		for verb, kind := range kinds {
			var msg *nats.Msg
			subject, _ := micro.ControlSubject(verb, r.Name, "")
			if msg, err = p.nc.Request(subject, nil, seconds(10)); err != nil {
				return
			}
			if err = json.Unmarshal(msg.Data, kind); err != nil {
				return
			}
			result[verb.String()] = kind
		}
	}
	return
}

func (p *program) messages(ctx context.Context, r request) (result reply, err error) {
	switch r.Op {
	case "publish":
		msg := &nats.Msg{Subject: r.Subject, Data: r.Value, Header: nats.Header{}}
		var pairs [][2]string
		if err = json.Unmarshal(r.Headers, &pairs); err != nil {
			return
		}
		for _, pair := range pairs {
			msg.Header[pair[0]] = append(msg.Header[pair[0]], pair[1])
		}
		var ack *jetstream.PubAck
		if ack, err = p.js.PublishMsg(ctx, msg); err == nil {
			result = reply{"seq": ack.Sequence}
		}
	case "schedule":
		at, _ := time.Parse(time.RFC3339, r.Schedule[len("@at "):])
		var ack *jetstream.PubAck
		ack, err = p.js.Publish(ctx, r.Subject, r.Value, jetstream.WithScheduleAt(at), jetstream.WithScheduleTarget(r.Target))
		if err == nil {
			result = reply{"seq": ack.Sequence}
		}
	case "get_msg":
		var stream jetstream.Stream
		if stream, err = p.js.Stream(ctx, r.Stream); err != nil {
			return
		}
		var found *jetstream.RawStreamMsg
		if found, err = stream.GetMsg(ctx, r.Seq); err == nil {
			headers := found.Header
			if headers == nil {
				headers = nats.Header{}
			}
			result = reply{"subject": found.Subject, "value": found.Data, "headers": headers}
		}
	}
	return
}

func (p *program) groups(ctx context.Context, r request) (result reply, err error) {
	switch r.Op {
	case "group_create": // version 0.1 has one filter
		for filter, wildcards := range r.Filters {
			_, err = pcgroups.CreateElastic(ctx, p.js, r.Stream, r.Name, r.Partitions, filter, wildcards, 0, 0)
		}
	case "group_config":
		var config *pcgroups.ElasticConsumerGroupConfig
		if config, err = pcgroups.GetElasticConsumerGroupConfig(ctx, p.js, r.Stream, r.Name); err == nil {
			mappings, members := map[string][]int{}, config.Members
			for _, each := range config.MemberMappings {
				mappings[each.Member] = each.Partitions
			}
			if members == nil {
				members = []string{}
			}
			result = reply{"partitions": config.MaxMembers, "members": members, "mappings": mappings}
		}
	case "group_list":
		var names []string
		names, err = pcgroups.ListElasticConsumerGroups(ctx, p.js, r.Stream)
		result = reply{"names": names}
	case "group_add":
		_, err = pcgroups.AddMembers(ctx, p.js, r.Stream, r.Name, r.Members)
	case "group_map":
		var mappings []pcgroups.MemberMapping
		for member, partitions := range r.Mappings {
			mappings = append(mappings, pcgroups.MemberMapping{Member: member, Partitions: partitions})
		}
		err = pcgroups.SetMemberMappings(ctx, p.js, r.Stream, r.Name, mappings)
	case "group_delete":
		err = pcgroups.DeleteElastic(ctx, p.js, r.Stream, r.Name)
	}
	return
}

func (p *program) do(r request) (reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), seconds(20))
	defer cancel()
	switch r.Op[:2] {
	case "kv":
		return p.keys(ctx, r)
	case "ob":
		return p.objects(ctx, r)
	case "sv":
		return p.serve(r)
	case "gr":
		return p.groups(ctx, r)
	}
	return p.messages(ctx, r)
}

func main() {
	nc, err := nats.Connect(os.Args[1])
	if err != nil {
		panic(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		panic(err)
	}
	p := &program{nc, js, map[string]micro.Service{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		result, err := p.do(r)
		if err != nil {
			result = reply{"error": err.Error()}
		}
		if result == nil {
			result = reply{}
		}
		line, err := json.Marshal(result)
		if err != nil {
			line, _ = json.Marshal(reply{"error": err.Error()})
		}
		os.Stdout.Write(append(line, '\n'))
	}
}
