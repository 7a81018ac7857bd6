"""Reads a trace store by docs/records.md alone, and compares it with what `dprobes convert --to json` says (standard input).

It knows nothing else of dprobes: where this does not read a store, the page is wrong.
"""
import json
import struct
import sys
import zlib

FACTS, RECORDS, INDEX, END = 1, 2, 3, 4
ITEMS = {"cpu": 0x4, "pid": 0x8, "uid": 0x10, "ip": 0x40, "sp": 0x100, "time": 0x200, "comm": 0x400}


class Payload:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        part = self.data[self.at : self.at + count]
        assert len(part) == count
        self.at += count
        return part

    def left(self):
        return len(self.data) - self.at

    def number(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                assert value < 1 << 64
                return value

    def difference(self):
        value = self.number()
        return -(value + 1) // 2 if value & 1 else value // 2

    def text(self):
        return self.take(self.number()).decode("utf-8")


def blocks(data):
    at, store = 0, None
    while at < len(data):
        header = data[at : at + 64]
        magic, own, version, kind, zero, length, first, least, greatest, _, records, number, crc, last = struct.unpack(
            "<4sIHBBIQQQQIIII", header
        )
        assert magic == b"\x89DPT" and version in (1, 2) and zero == 0 and length <= 1 << 20
        assert zlib.crc32(header[:60]) == last
        payload = data[at + 64 : at + 64 + length]
        assert zlib.crc32(payload) == crc
        assert store in (None, own)
        store = own
        yield at, kind, first, least, greatest, records, number, Payload(payload)
        at += 64 + length


def records_of(payload, count):
    time = struct.unpack("<Q", payload.take(8))[0]
    points, threads = [], []
    for _ in range(count):
        shape = payload.take(1)[0]
        time = (time + payload.difference()) % (1 << 64)
        if shape & 1:
            points.append({"fields": [payload.number() for _ in range(8)], "length": 0})
            point = points[-1]
        else:
            point = points[payload.number()]
        if shape & 2:
            ids = [payload.number() for _ in range(3)]
            threads.append({"ids": ids, "name": payload.text(), "cpu": 0, "esp": 0})
            thread = threads[-1]
        else:
            thread = threads[payload.number()]
        if shape & 4:
            thread["cpu"] = payload.number()
        thread["esp"] = (thread["esp"] + payload.difference()) % (1 << 64)
        if shape & 8:
            point["length"] = payload.number()
        data = payload.take(point["length"])
        program, probe, major, minor, eip, _cs, _ss, _word = point["fields"]
        pid, tid, uid = thread["ids"]
        yield program, {
            "time": time, "cpu": thread["cpu"], "pid": pid, "tid": tid, "uid": uid, "comm": thread["name"],
            "major": major, "minor": minor, "ip": hex(eip), "sp": hex(thread["esp"]), "data": data.hex(),
        }  # fmt: skip
    assert payload.at == len(payload.data)


def main():
    data = open(sys.argv[1], "rb").read()
    found, facts, counts, items, templates, kinds, end, index = [], 0, {}, {}, {}, [], None, None
    for due, (at, kind, first, least, greatest, records, number, payload) in enumerate(blocks(data)):
        assert number == due and first == len(found)
        kinds.append(kind)
        if kind == RECORDS:
            own = list(records_of(payload, records))
            times = [record["time"] for _, record in own]
            assert (min(times), max(times)) == (least, greatest)
            found += own
        elif kind == FACTS:
            while payload.at < len(payload.data):
                tag = payload.number()
                fact = Payload(payload.take(payload.number()))
                assert facts > 0 or tag == 1
                facts += 1
                if tag == 2:
                    program = fact.number()
                    fact.text(), fact.text(), fact.number(), fact.number(), fact.number()
                    items[program] = fact.number()
                if tag == 11:
                    codes, description = (fact.number(), fact.number()), fact.text()
                    if fact.number():
                        fact.text()
                    # Version 1 ends here.
                    program = fact.number() if fact.left() and fact.number() else None
                    templates[program, codes] = description
                if tag == 8:
                    program, probe, *values = [fact.number() for _ in range(8)]
                    counts[program, probe] = dict(zip(["hits", "runs", "ignored", "missed", "logged", "dropped"], values))
                    assert fact.text() == "armed"
        elif kind == INDEX:
            index = at
        elif kind == END:
            end = struct.unpack("<Q", payload.data)[0]
    assert kinds[-2:] == [INDEX, END] and end == index
    shown = sorted((json.loads(line) for line in sys.stdin), key=lambda record: record["number"])
    assert len(shown) == len(found) > 0
    for number, ((program, one), other) in enumerate(zip(found, shown)):
        assert other["number"] == number
        for name, value in one.items():
            if not items[program] & ITEMS.get(name, ~0):
                assert name not in other, (number, name)
                continue
            said = hex(int(other[name], 16)) if name in ("ip", "sp") else other[name]
            assert said == value, (number, name, value, said)
        codes = one["major"], one["minor"]
        assert other.get("event") == templates.get((program, codes), templates.get((None, codes))), (number, other)
    assert sum(count["logged"] for count in counts.values()) == len(found)
    print(len(found), "records")


main()
