"""A server that speaks the Redis protocol and lies: lying_server.py PORT MODE.  It greets as it should; to GET it answers with

bytes      what was stored with one bit changed
swap       the value of another key
cut        the value without its last bytes, as a whole answer
type       a number
array      an array of a thousand million
nest       arrays within arrays
length     a length without end, and then bytes without end
negative   a negative length
endless    a line that does not end
twice      two answers to one question
drip       the first byte, and a byte a second
garbage    what is no protocol
close      nothing: it hangs up
mute       nothing at all
error      an error with the client's own words in it
"""
import socketserver
import sys
import time

port, mode = int(sys.argv[1]), sys.argv[2]
values = {}


def bulk(value):
    return b"$%d\r\n%s\r\n" % (len(value), value)


def changed(value):
    at = len(value) // 2
    return value[:at] + bytes([value[at] ^ 4]) + value[at + 1:]


def other(key):
    names = [name for name in values if name != key and name[-8:] == key[-8:]]
    return values[names[0]] if names else values[key]


class Client(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def read_request(self):
        line = self.rfile.readline()
        if not line.startswith(b"*"):
            return None
        words = []
        for _ in range(int(line[1:])):
            length = int(self.rfile.readline()[1:])
            words.append(self.rfile.read(length))
            self.rfile.read(2)
        return words

    def flood(self, head, piece):
        self.wfile.write(head)
        while True:
            self.wfile.write(piece)

    def drip(self, text):
        for byte in text:
            self.wfile.write(bytes([byte]))
            time.sleep(1)

    def lie(self, key):
        value = values[key]
        if mode == "length":
            return self.flood(b"$99999999999\r\n", bytes(65536))
        if mode == "endless":
            return self.flood(b"+", b"x" * 65536)
        if mode == "drip":
            return self.drip(bulk(value))
        if mode == "close":
            raise ConnectionError
        if mode == "mute":
            return time.sleep(600)
        answer = {"bytes": bulk(changed(value)), "swap": bulk(other(key)), "cut": bulk(value[:-7]), "type": b":5\r\n",
                  "array": b"*1000000000\r\n" + b"$1\r\nx\r\n" * 9, "nest": b"*1\r\n" * 20, "negative": b"$-7\r\n",
                  "twice": bulk(value) * 2, "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n",
                  "error": b"-ERR unknown command, with args beginning with: secret\r\n"}[mode]
        return self.wfile.write(answer)

    def answer(self, words):
        verb = words[0].upper()
        if verb == b"PING":
            self.wfile.write(b"+PONG\r\n")
        elif verb == b"AUTH":
            self.wfile.write(b"-ERR unknown command `AUTH`, with args beginning with: `%s`\r\n" % words[-1]
                             if mode == "error" else b"+OK\r\n")
        elif verb == b"SET":
            values[words[1]] = words[2]
            self.wfile.write(b"+OK\r\n")
        elif verb == b"GET" and words[1] in values:
            self.lie(words[1])
        elif verb == b"EXISTS":
            self.wfile.write(b":7\r\n" if mode == "type" else b":%d\r\n" % (words[1] in values))
        else:
            self.wfile.write(b"$-1\r\n")

    def handle(self):
        try:
            while words := self.read_request():
                self.answer(words)
        except (ConnectionError, ValueError):
            pass


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


Server(("127.0.0.1", port), Client).serve_forever()
