# Import by the full name: spark-submit runs this file as a script.
import sys

from jsync.spark.pipeline import main

if __name__ == "__main__":
    sys.exit(main())
