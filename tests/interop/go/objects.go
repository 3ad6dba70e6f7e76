package main

import (
	"bytes"
	"context"
	"io"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type object struct {
	Name        string              `json:"name"`
	Bucket      string              `json:"bucket"`
	NUID        string              `json:"nuid"`
	Size        uint64              `json:"size"`
	Chunks      uint32              `json:"chunks"`
	Digest      string              `json:"digest"`
	Deleted     bool                `json:"deleted"`
	Description string              `json:"description"`
	Headers     map[string][]string `json:"headers"`
	Metadata    map[string]string   `json:"metadata"`
	ChunkSize   uint32              `json:"chunk_size"`
	LinkBucket  string              `json:"link_bucket"`
	LinkName    string              `json:"link_name"`
	Modified    int64               `json:"modified"`
}

func objectOf(info *jetstream.ObjectInfo) object {
	found := object{
		Name: info.Name, Bucket: info.Bucket, NUID: info.NUID, Size: info.Size, Chunks: info.Chunks,
		Digest: info.Digest, Deleted: info.Deleted, Description: info.Description,
		Headers: info.Headers, Metadata: info.Metadata, Modified: info.ModTime.UnixMicro(),
	}
	if info.Opts != nil {
		found.ChunkSize = info.Opts.ChunkSize
		if info.Opts.Link != nil {
			found.LinkBucket, found.LinkName = info.Opts.Link.Bucket, info.Opts.Link.Name
		}
	}
	return found
}

func metaOf(r request) jetstream.ObjectMeta {
	meta := jetstream.ObjectMeta{
		Name: r.Object.Name, Description: r.Object.Description, Metadata: r.Object.Metadata,
		Headers: nats.Header(r.Object.Headers),
	}
	if r.Object.ChunkSize > 0 {
		meta.Opts = &jetstream.ObjectMetaOptions{ChunkSize: r.Object.ChunkSize}
	}
	return meta
}

func doObject(ctx context.Context, js jetstream.JetStream, r request) (result answer, err error) {
	if r.Op == "create_store" {
		_, err = js.CreateObjectStore(ctx, r.Store)
		return
	}
	store, err := js.ObjectStore(ctx, r.Bucket)
	if err != nil {
		return
	}
	var info *jetstream.ObjectInfo
	switch r.Op {
	case "put_object":
		info, err = store.Put(ctx, metaOf(r), bytes.NewReader(r.Value))
	case "get_object":
		var found jetstream.ObjectResult
		if found, err = store.Get(ctx, r.Key); err != nil {
			return
		}
		defer found.Close()
		if result.Value, err = io.ReadAll(found); err != nil {
			return
		}
		info, err = found.Info()
	case "object_info":
		info, err = store.GetInfo(ctx, r.Key, jetstream.GetObjectInfoShowDeleted())
	case "delete_object":
		err = store.Delete(ctx, r.Key)
	case "rename_object":
		err = store.UpdateMeta(ctx, r.Key, metaOf(r))
	case "link_object":
		var target *jetstream.ObjectInfo
		if target, err = store.GetInfo(ctx, r.Key); err == nil {
			info, err = store.AddLink(ctx, r.Object.Name, target)
		}
	case "link_store":
		info, err = store.AddBucketLink(ctx, r.Object.Name, store)
	case "seal_store":
		err = store.Seal(ctx)
	case "objects":
		var all []*jetstream.ObjectInfo
		all, err = store.List(ctx, jetstream.ListObjectsShowDeleted())
		for _, one := range all {
			result.Objects = append(result.Objects, objectOf(one))
		}
	}
	if err == nil && info != nil {
		result.Objects = append(result.Objects, objectOf(info))
	}
	return
}
