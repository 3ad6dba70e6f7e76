"""Write the rows of a CSV file to a stream by fast ingest, one message for each row.

    python examples/ingest_csv.py FILE.csv

`jsync ingest` does this without a program. It can also resume an interrupted file.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import msgspec

import jsync

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")


def main(path: str) -> None:
    encode = msgspec.json.Encoder().encode
    with jsync.connect(URL) as nc, Path(path).open(newline="") as file:
        js = nc.jetstream()
        stream = js.create_stream(
            name="FLIGHTS", subjects=["flights.*.*"], allow_batched=True
        )
        # The block ends when the stream has stored every row. Otherwise it raises an error.
        with js.fast_ingest() as ingest:
            for number, row in enumerate(csv.DictReader(file), 1):
                ingest.add(
                    f"flights.{row['carrier']}.{row['origin']}",
                    encode(row),
                    msg_id=f"{path}:{number}",  # a row that is sent twice is stored once
                )
        print(f"{ingest.pub_ack.count} rows sent")
        info = stream.info(subjects_filter="flights.UA.*")
        print(f"{info.state.messages} stored; of United by airport:")
        for subject, count in sorted((info.state.subjects or {}).items()):
            print(f"  {subject} {count}")


if __name__ == "__main__":
    main(sys.argv[1])
