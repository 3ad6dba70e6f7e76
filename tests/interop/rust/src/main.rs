//! Operations of async-nats. Each line of input is a JSON request, and each line of output its
//! reply. `tests/interop/clients.py` lists the operations.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::{self, kv, object_store, stream::StorageType};
use async_nats::service::{self, ServiceExt};
use async_nats::{HeaderMap, HeaderValue};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

type Reply = Result<Value, async_nats::Error>;

fn text<'a>(r: &'a Value, name: &str) -> &'a str {
    r[name].as_str().unwrap_or("")
}

fn data(r: &Value) -> Bytes {
    STANDARD.decode(text(r, "value")).unwrap_or_default().into()
}

fn seconds(r: &Value, name: &str) -> Option<Duration> {
    match r[name].as_u64().unwrap_or(0) {
        0 => None,
        n => Some(Duration::from_secs(n)),
    }
}

fn texts(r: &Value, name: &str) -> HashMap<String, String> {
    let pairs = r[name].as_object().into_iter().flatten();
    pairs.map(|(k, v)| (k.clone(), v.as_str().unwrap_or("").to_string())).collect()
}

fn grouped(headers: &HeaderMap) -> Value {
    headers
        .iter()
        .map(|(name, values)| {
            let values: Vec<&str> = values.iter().map(HeaderValue::as_str).collect();
            (name.to_string(), json!(values))
        })
        .collect()
}

fn entry(e: &kv::Entry) -> Value {
    let operation = match e.operation {
        kv::Operation::Put => "PUT",
        kv::Operation::Delete => "DEL",
        kv::Operation::Purge => "PURGE",
    };
    json!({"key": e.key, "value": STANDARD.encode(&e.value), "revision": e.revision, "operation": operation})
}

fn info(o: &object_store::ObjectInfo) -> Value {
    let link = o.options.as_ref().and_then(|options| options.link.as_ref());
    json!({
        "name": o.name,
        "description": o.description.clone().unwrap_or_default(),
        "headers": o.headers.as_ref().map(grouped).unwrap_or_else(|| json!({})),
        "metadata": o.metadata,
        "size": o.size,
        "chunks": o.chunks,
        "digest": o.digest.clone().unwrap_or_default(),
        "deleted": o.deleted,
        "link": link.map(|link| json!([link.bucket, link.name.clone().unwrap_or_default()])),
    })
}

struct Program {
    nc: async_nats::Client,
    js: jetstream::Context,
    services: HashMap<String, service::Service>,
}

impl Program {
    async fn keys(&self, op: &str, r: &Value) -> Reply {
        let bucket = text(r, "bucket").to_string();
        if op == "kv_create" {
            let config = kv::Config {
                bucket,
                description: text(r, "description").to_string(),
                history: r["history"].as_i64().unwrap_or(1),
                storage: StorageType::Memory,
                limit_markers: seconds(r, "marker_ttl"),
                ..Default::default()
            };
            self.js.create_key_value(config).await?;
            return Ok(json!({}));
        }
        let kv = self.js.get_key_value(bucket).await?;
        let key = text(r, "key");
        let ttl = seconds(r, "ttl");
        Ok(match op {
            "kv_put" => json!({"revision": kv.put(key, data(r)).await?}),
            "kv_insert" => {
                let revision = match ttl {
                    Some(ttl) => kv.create_with_ttl(key, data(r), ttl).await?,
                    None => kv.create(key, data(r)).await?,
                };
                json!({"revision": revision})
            }
            "kv_update" => {
                let last = r["last"].as_u64().unwrap_or(0);
                json!({"revision": kv.update(key, data(r), last).await?})
            }
            "kv_delete" => {
                kv.delete(key).await?;
                json!({})
            }
            "kv_purge" => {
                match ttl {
                    Some(ttl) => kv.purge_with_ttl(key, ttl).await?,
                    None => kv.purge(key).await?,
                };
                json!({})
            }
            "kv_get" => match kv.entry(key).await? {
                Some(found) if found.operation == kv::Operation::Put => {
                    json!({"entry": entry(&found)})
                }
                _ => return Err("not found".into()),
            },
            "kv_history" => {
                let found: Vec<kv::Entry> = kv.history(key).await?.try_collect().await?;
                json!({"entries": found.iter().map(entry).collect::<Vec<Value>>()})
            }
            "kv_keys" => {
                let found: Vec<String> = kv.keys().await?.try_collect().await?;
                json!({"keys": found})
            }
            "kv_status" => {
                let status = kv.status().await?;
                json!({"history": status.history(), "values": status.values()})
            }
            _ => return Err(format!("unknown: {op}").into()),
        })
    }

    async fn objects(&self, op: &str, r: &Value) -> Reply {
        let bucket = text(r, "bucket");
        if op == "obj_create" {
            let config = object_store::Config {
                bucket: bucket.to_string(),
                description: Some(text(r, "description").to_string()),
                storage: StorageType::Memory,
                ..Default::default()
            };
            self.js.create_object_store(config).await?;
            return Ok(json!({}));
        }
        let store = self.js.get_object_store(bucket).await?;
        let name = text(r, "name");
        match op {
            "obj_put" => {
                let mut headers = HeaderMap::new();
                for (name, values) in r["headers"].as_object().into_iter().flatten() {
                    for value in values.as_array().into_iter().flatten() {
                        headers.append(name.as_str(), value.as_str().unwrap_or(""));
                    }
                }
                let meta = object_store::ObjectMetadata {
                    name: name.to_string(),
                    description: Some(text(r, "description").to_string()),
                    chunk_size: r["chunk_size"].as_u64().map(|n| n as usize),
                    metadata: texts(r, "metadata"),
                    headers: (!headers.is_empty()).then_some(headers),
                };
                store.put(meta, &mut data(r).as_ref()).await?;
            }
            "obj_get" => {
                let mut found = Vec::new();
                store.get(name).await?.read_to_end(&mut found).await?;
                return Ok(json!({"value": STANDARD.encode(found)}));
            }
            "obj_info" => {
                let found = store.info(name).await?;
                if found.deleted {
                    return Err("not found".into());
                }
                return Ok(json!({"info": info(&found)}));
            }
            "obj_list" => {
                let found: Vec<_> = store.list().await?.try_collect().await?;
                let names: Vec<&str> = found.iter().map(|o| o.name.as_str()).collect();
                return Ok(json!({"names": names}));
            }
            "obj_update" => {
                let meta = object_store::UpdateMetadata {
                    name: r["new_name"].as_str().unwrap_or(name).to_string(),
                    description: Some(text(r, "description").to_string()),
                    ..Default::default()
                };
                store.update_metadata(name, meta).await?;
            }
            "obj_delete" => store.delete(name).await?,
            "obj_link" => {
                let target = store.info(text(r, "target")).await?;
                store.add_link(name, &target).await?;
            }
            "obj_link_store" => {
                store.add_bucket_link(name, text(r, "target")).await?;
            }
            _ => return Err(format!("unknown: {op}").into()),
        }
        Ok(json!({}))
    }

    async fn serve(&mut self, op: &str, r: &Value) -> Reply {
        let name = text(r, "name");
        match op {
            "svc_start" => {
                let service = self
                    .nc
                    .service_builder()
                    .description(text(r, "description"))
                    .metadata(texts(r, "metadata"))
                    .start(name, "1.2.3")
                    .await?;
                let metadata = HashMap::from([("of".to_string(), "endpoint".to_string())]);
                let builder = service.group(name).endpoint_builder().metadata(metadata);
                let mut endpoint = builder.name("upper").add("upper").await?;
                tokio::spawn(async move {
                    while let Some(request) = endpoint.next().await {
                        let asked = String::from_utf8_lossy(&request.message.payload).to_string();
                        let headers = request.message.headers.clone().unwrap_or_default();
                        let answer = if asked == "fail" {
                            let status = "bad input".to_string();
                            Err(service::error::Error { status, code: 422 })
                        } else {
                            Ok(asked.to_uppercase().into())
                        };
                        let _ = request.respond_with_headers(answer, headers).await;
                    }
                });
                self.nc.flush().await?;
                self.services.insert(name.to_string(), service);
            }
            "svc_stop" => {
                if let Some(service) = self.services.remove(name) {
                    service.stop().await?;
                }
            }
            "svc_call" => {
                let subject = text(r, "subject").to_string();
                let reply = self.nc.request(subject, data(r)).await?;
                let headers = reply.headers.unwrap_or_default();
                let one = |name: &str| headers.get(name).map(|value| value.as_str().to_string());
                return Ok(json!({
                    "value": STANDARD.encode(reply.payload),
                    "code": one("Nats-Service-Error-Code").unwrap_or_default(),
                    "description": one("Nats-Service-Error").unwrap_or_default(),
                }));
            }
            "svc_verbs" => {
                let mut answers = Vec::new();
                for verb in ["PING", "INFO", "STATS"] {
                    let subject = format!("$SRV.{verb}.{name}");
                    answers.push(self.nc.request(subject, Bytes::new()).await?.payload);
                }
                let ping: service::PingResponse = serde_json::from_slice(&answers[0])?;
                let info: service::Info = serde_json::from_slice(&answers[1])?;
                let stats: service::Stats = serde_json::from_slice(&answers[2])?;
                return Ok(json!({"PING": ping, "INFO": info, "STATS": stats}));
            }
            _ => return Err(format!("unknown: {op}").into()),
        }
        Ok(json!({}))
    }

    async fn messages(&self, op: &str, r: &Value) -> Reply {
        match op {
            "publish" => {
                let mut headers = HeaderMap::new();
                for pair in r["headers"].as_array().into_iter().flatten() {
                    headers.append(
                        pair[0].as_str().unwrap_or(""),
                        pair[1].as_str().unwrap_or(""),
                    );
                }
                let subject = text(r, "subject").to_string();
                let ack = self.js.publish_with_headers(subject, headers, data(r)).await?.await?;
                Ok(json!({"seq": ack.sequence}))
            }
            "get_msg" => {
                let stream = self.js.get_stream(text(r, "stream")).await?;
                let found = stream.get_raw_message(r["seq"].as_u64().unwrap_or(0)).await?;
                Ok(json!({
                    "subject": found.subject.as_str(),
                    "value": STANDARD.encode(&found.payload),
                    "headers": grouped(&found.headers),
                }))
            }
            _ => Err(format!("unknown: {op}").into()),
        }
    }

    async fn run(&mut self, r: &Value) -> Reply {
        let op = text(r, "op");
        match op.get(..2) {
            Some("kv") => self.keys(op, r).await,
            Some("ob") => self.objects(op, r).await,
            Some("sv") => self.serve(op, r).await,
            _ => self.messages(op, r).await,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), async_nats::Error> {
    let url = std::env::args().nth(1).ok_or("a URL is missing")?;
    let nc = async_nats::connect(url).await?;
    let js = jetstream::new(nc.clone());
    let mut program = Program { nc, js, services: HashMap::new() };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut out = tokio::io::stdout();
    while let Some(line) = lines.next_line().await? {
        let request: Value = serde_json::from_str(&line)?;
        let reply = match program.run(&request).await {
            Ok(reply) => reply,
            Err(error) => json!({"error": error.to_string()}),
        };
        out.write_all(format!("{reply}\n").as_bytes()).await?;
        out.flush().await?;
    }
    Ok(())
}
