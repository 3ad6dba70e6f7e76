"""Operations of natsio, with its extension for consumer groups: see `peer.py`."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from typing import Any

import natsio
from natsio import kv, micro, objectstore, pcgroups
from natsio.jetstream.entities import StorageType
from natsio.kvcodec import Base64KeyCodec, PathKeyCodec
from peer import data, run, text  # type: ignore[import-not-found] # beside this file

CODECS = {"": None, "base64": Base64KeyCodec(), "path": PathKeyCodec()}


def entry(found: Any) -> dict[str, Any]:
    return {
        "key": found.key,
        "value": text(found.value),
        "revision": found.revision,
        "operation": found.operation.value,
    }


def info(found: Any) -> dict[str, Any]:
    link = found.options.link if found.options else None
    return {
        "name": found.name,
        "description": found.description or "",
        "headers": found.headers or {},
        "metadata": found.metadata or {},
        "size": found.size,
        "chunks": found.chunks,
        "digest": found.digest or "",
        "deleted": found.is_deleted,
        "link": link and [link.bucket, link.name or ""],
    }


class Operations:
    def __init__(self, nc: Any) -> None:
        self.nc, self.js = nc, nc.jetstream()
        self.services: dict[str, Any] = {}

    async def bucket(self, r: dict[str, Any]) -> Any:
        return await self.js.key_value(
            r["bucket"], key_codec=CODECS[r.get("codec", "")]
        )

    # Buckets of keys

    async def kv_create(self, r: dict[str, Any]) -> None:
        marker = r["marker_ttl"]
        config = kv.KeyValueConfig(
            bucket=r["bucket"],
            history=r["history"],
            description=r["description"],
            limit_marker_ttl=timedelta(seconds=marker) if marker else None,
            storage=StorageType.MEMORY,
        )
        await self.js.create_key_value(config)

    async def kv_put(self, r: dict[str, Any]) -> Any:
        return {"revision": await (await self.bucket(r)).put(r["key"], data(r))}

    async def kv_insert(self, r: dict[str, Any]) -> Any:
        bucket = await self.bucket(r)
        return {
            "revision": await bucket.create(r["key"], data(r), ttl=r["ttl"] or None)
        }

    async def kv_update(self, r: dict[str, Any]) -> Any:
        bucket = await self.bucket(r)
        return {"revision": await bucket.update(r["key"], data(r), last=r["last"])}

    async def kv_delete(self, r: dict[str, Any]) -> None:
        await (await self.bucket(r)).delete(r["key"])

    async def kv_purge(self, r: dict[str, Any]) -> None:
        await (await self.bucket(r)).purge(r["key"], ttl=r["ttl"] or None)

    async def kv_get(self, r: dict[str, Any]) -> Any:
        return {"entry": entry(await (await self.bucket(r)).get(r["key"]))}

    async def kv_history(self, r: dict[str, Any]) -> Any:
        found = await (await self.bucket(r)).history(r["key"])
        return {"entries": [entry(each) for each in found]}

    async def kv_keys(self, r: dict[str, Any]) -> Any:
        return {"keys": await (await self.bucket(r)).keys()}

    async def kv_status(self, r: dict[str, Any]) -> Any:
        status = await (await self.bucket(r)).status()
        return {"history": status.history, "values": status.values}

    # Object stores

    async def obj_create(self, r: dict[str, Any]) -> None:
        config = objectstore.ObjectStoreConfig(
            bucket=r["bucket"],
            description=r["description"],
            metadata=r["metadata"],
            storage=StorageType.MEMORY,
        )
        await self.js.create_object_store(config)

    async def obj_put(self, r: dict[str, Any]) -> None:
        store = await self.js.object_store(r["bucket"])
        meta = objectstore.ObjectMeta(
            name=r["name"],
            description=r["description"] or None,
            headers=r["headers"] or None,
            metadata=r["metadata"] or None,
            chunk_size=r["chunk_size"],
        )
        await store.put(meta, data(r))

    async def obj_get(self, r: dict[str, Any]) -> Any:
        store = await self.js.object_store(r["bucket"])
        return {"value": text(await store.get_bytes(r["name"]))}

    async def obj_info(self, r: dict[str, Any]) -> Any:
        store = await self.js.object_store(r["bucket"])
        return {"info": info(await store.info(r["name"]))}

    async def obj_list(self, r: dict[str, Any]) -> Any:
        store = await self.js.object_store(r["bucket"])
        return {"names": [each.name for each in await store.list()]}

    async def obj_update(self, r: dict[str, Any]) -> None:
        store = await self.js.object_store(r["bucket"])
        meta = objectstore.ObjectMeta(
            name=r.get("new_name", r["name"]), description=r["description"]
        )
        await store.update_meta(r["name"], meta)

    async def obj_delete(self, r: dict[str, Any]) -> None:
        await (await self.js.object_store(r["bucket"])).delete(r["name"])

    async def obj_link(self, r: dict[str, Any]) -> None:
        store = await self.js.object_store(r["bucket"])
        await store.add_link(r["name"], await store.info(r["target"]))

    async def obj_link_store(self, r: dict[str, Any]) -> None:
        store = await self.js.object_store(r["bucket"])
        await store.add_bucket_link(r["name"], r["target"])

    # Services

    async def svc_start(self, r: dict[str, Any]) -> None:
        async def upper(request: Any) -> None:
            if request.data == b"fail":
                await request.respond_error("422", "bad input")
            else:
                await request.respond(request.data.upper(), headers=request.headers)

        service = micro.add_service(
            self.nc,
            name=r["name"],
            version="1.2.3",
            description=r["description"],
            metadata=r["metadata"],
        )
        group = service.add_group(r["name"])
        group.add_endpoint("upper", upper, metadata={"of": "endpoint"})
        self.services[r["name"]] = await service
        await self.nc.flush()

    async def svc_stop(self, r: dict[str, Any]) -> None:
        await self.services.pop(r["name"]).stop()

    async def svc_call(self, r: dict[str, Any]) -> Any:
        reply = await self.nc.request(r["subject"], data(r), timeout=10)
        headers = reply.headers or {}
        return {
            "value": text(reply.payload),
            "code": headers.get("Nats-Service-Error-Code", ""),
            "description": headers.get("Nats-Service-Error", ""),
        }

    async def svc_verbs(self, r: dict[str, Any]) -> Any:
        kinds = {
            "PING": micro.PingResponse,
            "INFO": micro.InfoResponse,
            "STATS": micro.StatsResponse,
        }
        found = {}
        for verb, kind in kinds.items():
            subject = micro.service.control_subject(verb, r["name"])
            reply = await self.nc.request(subject, timeout=10)
            found[verb] = kind.from_wire(json.loads(reply.payload)).to_wire()
        return found

    # Messages

    async def publish(self, r: dict[str, Any]) -> Any:
        headers: dict[str, list[str]] = {}
        for name, value in r["headers"]:
            headers.setdefault(name, []).append(value)
        ack = await self.js.publish(r["subject"], data(r), headers=headers)
        return {"seq": ack.seq}

    async def get_msg(self, r: dict[str, Any]) -> Any:
        found = await (await self.js.stream(r["stream"])).get_msg(r["seq"])
        names = found.headers or natsio.Headers()
        headers = {name: names.get_all(name) for name in names}
        return {
            "subject": found.subject,
            "value": text(found.payload),
            "headers": headers,
        }

    # Consumer groups

    async def group_create(self, r: dict[str, Any]) -> None:
        filters = [
            pcgroups.PartitioningFilter(filter=name, partitioning_wildcards=wildcards)
            for name, wildcards in r["filters"].items()
        ]
        await pcgroups.create_elastic(
            self.js, r["stream"], r["name"], r["partitions"], filters
        )

    async def group_config(self, r: dict[str, Any]) -> Any:
        config = await pcgroups.get_elastic_config(self.js, r["stream"], r["name"])
        return {
            "partitions": config.max_members,
            "members": config.members or [],
            "mappings": {m.member: m.partitions for m in config.member_mappings or ()},
        }

    async def group_list(self, r: dict[str, Any]) -> Any:
        return {"names": await pcgroups.list_elastic_groups(self.js, r["stream"])}

    async def group_add(self, r: dict[str, Any]) -> None:
        await pcgroups.add_members(self.js, r["stream"], r["name"], r["members"])

    async def group_map(self, r: dict[str, Any]) -> None:
        mappings = [
            pcgroups.MemberMapping(member=name, partitions=partitions)
            for name, partitions in r["mappings"].items()
        ]
        await pcgroups.set_member_mappings(self.js, r["stream"], r["name"], mappings)

    async def group_delete(self, r: dict[str, Any]) -> None:
        await pcgroups.delete_elastic(self.js, r["stream"], r["name"])


async def main() -> None:
    async with await natsio.connect(sys.argv[1]) as nc:
        await run(Operations(nc))


asyncio.run(main())
