"""Operations of nats-py: see `peer.py`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import nats
import nats.micro
from nats.js import api
from peer import data, run, text  # type: ignore[import-not-found] # beside this file


def entry(found: Any) -> dict[str, Any]:
    return {
        "key": found.key,
        "value": text(found.value),
        "revision": found.revision,
        "operation": found.operation or "PUT",
    }


def info(found: Any) -> dict[str, Any]:
    link = found.options.link if found.options else None
    return {
        "name": found.name,
        "description": found.description or "",
        "headers": found.headers or {},
        "metadata": {},
        "size": found.size or 0,
        "chunks": found.chunks or 0,
        "digest": found.digest or "",
        "deleted": bool(found.deleted),
        "link": link and [link.bucket, link.name or ""],
    }


class Operations:
    def __init__(self, nc: Any) -> None:
        self.nc, self.js = nc, nc.jetstream()
        self.services: dict[str, Any] = {}

    # Buckets of keys

    async def kv_create(self, r: dict[str, Any]) -> None:
        await self.js.create_key_value(
            bucket=r["bucket"],
            history=r["history"],
            description=r["description"],
            limit_marker_ttl=r["marker_ttl"] or None,
            storage=api.StorageType.MEMORY,
        )

    async def kv_put(self, r: dict[str, Any]) -> Any:
        kv = await self.js.key_value(r["bucket"])
        return {"revision": await kv.put(r["key"], data(r))}

    async def kv_insert(self, r: dict[str, Any]) -> Any:
        kv = await self.js.key_value(r["bucket"])
        ttl = r["ttl"] or None
        return {"revision": await kv.create(r["key"], data(r), msg_ttl=ttl)}

    async def kv_update(self, r: dict[str, Any]) -> Any:
        kv = await self.js.key_value(r["bucket"])
        return {"revision": await kv.update(r["key"], data(r), last=r["last"])}

    async def kv_delete(self, r: dict[str, Any]) -> None:
        await (await self.js.key_value(r["bucket"])).delete(r["key"])

    async def kv_purge(self, r: dict[str, Any]) -> None:
        kv = await self.js.key_value(r["bucket"])
        await kv.purge(r["key"], msg_ttl=r["ttl"] or None)

    async def kv_get(self, r: dict[str, Any]) -> Any:
        kv = await self.js.key_value(r["bucket"])
        return {"entry": entry(await kv.get(r["key"]))}

    async def kv_history(self, r: dict[str, Any]) -> Any:
        kv = await self.js.key_value(r["bucket"])
        return {"entries": [entry(each) for each in await kv.history(r["key"])]}

    async def kv_keys(self, r: dict[str, Any]) -> Any:
        return {"keys": await (await self.js.key_value(r["bucket"])).keys()}

    async def kv_status(self, r: dict[str, Any]) -> Any:
        status = await (await self.js.key_value(r["bucket"])).status()
        return {"history": status.history, "values": status.values}

    # Object stores

    async def obj_create(self, r: dict[str, Any]) -> None:
        await self.js.create_object_store(
            bucket=r["bucket"],
            description=r["description"],
            storage=api.StorageType.MEMORY,
        )

    async def obj_put(self, r: dict[str, Any]) -> None:
        store = await self.js.object_store(r["bucket"])
        options = api.ObjectMetaOptions(max_chunk_size=r["chunk_size"])
        # nats-py writes headers as they are: programs give one text for each name.
        headers = {name: values[0] for name, values in r["headers"].items()}
        meta = api.ObjectMeta(
            name=r["name"],
            description=r["description"] or None,
            headers=headers or None,
            options=options,
        )
        await store.put(r["name"], data(r), meta=meta)

    async def obj_get(self, r: dict[str, Any]) -> Any:
        store = await self.js.object_store(r["bucket"])
        return {"value": text((await store.get(r["name"])).data)}

    async def obj_info(self, r: dict[str, Any]) -> Any:
        store = await self.js.object_store(r["bucket"])
        return {"info": info(await store.get_info(r["name"]))}

    async def obj_list(self, r: dict[str, Any]) -> Any:
        store = await self.js.object_store(r["bucket"])
        return {"names": [each.name for each in await store.list(ignore_deletes=True)]}

    async def obj_update(self, r: dict[str, Any]) -> None:
        store = await self.js.object_store(r["bucket"])
        meta = api.ObjectMeta(name=r["name"], description=r["description"])
        await store.update_meta(r["name"], meta)

    async def obj_delete(self, r: dict[str, Any]) -> None:
        await (await self.js.object_store(r["bucket"])).delete(r["name"])

    # Services

    async def svc_start(self, r: dict[str, Any]) -> None:
        async def upper(request: Any) -> None:
            if request.data == b"fail":
                await request.respond_error("422", "bad input")
            else:
                await request.respond(request.data.upper(), request.headers)

        service = await nats.micro.add_service(
            self.nc,
            name=r["name"],
            version="1.2.3",
            description=r["description"],
            metadata=r["metadata"],
        )
        group = service.add_group(name=r["name"])
        await group.add_endpoint(
            name="upper", handler=upper, metadata={"of": "endpoint"}
        )
        self.services[r["name"]] = service
        await self.nc.flush()

    async def svc_stop(self, r: dict[str, Any]) -> None:
        await self.services.pop(r["name"]).stop()

    async def svc_call(self, r: dict[str, Any]) -> Any:
        reply = await self.nc.request(r["subject"], data(r), timeout=10)
        headers = reply.headers or {}
        return {
            "value": text(reply.data),
            "code": headers.get("Nats-Service-Error-Code", ""),
            "description": headers.get("Nats-Service-Error", ""),
        }

    async def svc_verbs(self, r: dict[str, Any]) -> Any:
        found = {}
        for verb in ("PING", "INFO", "STATS"):
            reply = await self.nc.request(f"$SRV.{verb}.{r['name']}", timeout=10)
            found[verb] = json.loads(reply.data)
        nats.micro.service.ServicePing.from_dict(found["PING"])
        nats.micro.service.ServiceInfo.from_dict(found["INFO"])
        # Its ServiceStats wants a field `data`, which is optional (ADR-32).
        return found

    # Messages

    async def publish(self, r: dict[str, Any]) -> Any:
        ack = await self.js.publish(r["subject"], data(r), headers=dict(r["headers"]))
        return {"seq": ack.seq}

    async def get_msg(self, r: dict[str, Any]) -> Any:
        found = await self.js.get_msg(r["stream"], seq=r["seq"])
        headers = {name: [value] for name, value in (found.headers or {}).items()}
        return {"subject": found.subject, "value": text(found.data), "headers": headers}


async def main() -> None:
    nc = await nats.connect(sys.argv[1])
    await run(Operations(nc))
    await nc.close()


asyncio.run(main())
