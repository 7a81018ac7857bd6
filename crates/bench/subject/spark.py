"""What Spark reads in a file of Parquet: spark.py FILE EXPRESSION... prints `said` and the values of the expressions over all rows.

Spark's library for Snappy comes with builds for glibc and for musl, and takes a machine that has musl beside glibc (/lib/ld-musl-*) for one that
has musl alone; that one then cannot be loaded (UnsatisfiedLinkError: libc.musl-x86_64.so.1). So the right one is taken out of the archive and named.
"""
import glob
import os
import platform
import sys
import tempfile
import zipfile

import pyspark

with tempfile.TemporaryDirectory() as directory:
    name = "libsnappyjava.so"
    archives = glob.glob(os.path.join(os.path.dirname(pyspark.__file__), "jars", "snappy-java-*.jar"))
    if archives and platform.libc_ver()[0] == "glibc":
        with zipfile.ZipFile(archives[0]) as archive, open(os.path.join(directory, name), "wb") as library:
            library.write(archive.read(f"org/xerial/snappy/native/Linux/{platform.machine()}/{name}"))
        options = f"-Dorg.xerial.snappy.lib.path={directory} -Dorg.xerial.snappy.lib.name={name}"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-java-options '{options}' pyspark-shell"
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    print("said", *spark.read.parquet(sys.argv[1]).selectExpr(*sys.argv[2:]).first())
    spark.stop()
