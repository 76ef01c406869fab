"""URLs that lead, or try to lead, to this machine or its neighbours. {port} is a port where somebody listens.

Names that end in .test are looked up by `hostile_lookup`, everything else by the system's own getaddrinfo with numbers
only, which takes 0177.1 and 2130706433 for addresses.
"""

from __future__ import annotations

import socket

HOSTILE_URLS = [
    # plain
    "http://127.0.0.1:{port}/",
    "http://127.0.0.2:{port}/",
    "http://127.255.255.254:{port}/",
    "http://0.0.0.0:{port}/",
    "http://0:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST:{port}/",
    "http://a.localhost:{port}/",
    "http://localhost.:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://169.254.169.254:{port}/latest/meta-data/",
    "http://10.0.0.1:{port}/",
    "http://172.16.0.1:{port}/",
    "http://192.168.0.1:{port}/",
    "http://100.100.100.200:{port}/",
    "http://168.63.129.16:{port}/",
    "http://224.0.0.1:{port}/",
    "http://255.255.255.255:{port}/",
    # unusual spellings of 127.0.0.1
    "http://2130706433:{port}/",
    "http://017700000001:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7F.0x0.0x0.0x1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://0177.1:{port}/",
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://0x7f.1:{port}/",
    "http://00127.0.0.1:{port}/",
    "http://127.0.0.01:{port}/",
    "http://127.0.0.0x1:{port}/",
    "http://256.256.256.256:{port}/",
    "http://4294967297:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/",
    "http://127。0。0。1:{port}/",
    "http://１２７.0.0.1:{port}/",
    "http://ｌocalhost:{port}/",
    "http://localho\u017ft:{port}/",
    "http://127.0.0.1\u3002:{port}/",
    # IPv6
    "http://[::1]:{port}/",
    "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[::]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[64:ff9b::127.0.0.1]:{port}/",
    "http://[64:ff9b:1::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[2001:0:7f00:1::]:{port}/",
    "http://[fe80::1]:{port}/",
    "http://[fe80::1%25lo]:{port}/",
    "http://[::1%lo]:{port}/",
    "http://[fc00::1]:{port}/",
    "http://[fd00:ec2::254]:{port}/",
    "http://[ff02::1]:{port}/",
    "http://::1:{port}/",
    "http://[::1]{port}/",
    "http://[[::1]]:{port}/",
    # two readers, two hosts
    "http://example.com@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@example.com/",
    "http://127.0.0.1:{port}#@example.com/",
    "http://example.com#@127.0.0.1:{port}/",
    "http://example.com\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@example.com/",
    "http://example.com:80@127.0.0.1:{port}/",
    "http:\\\\127.0.0.1:{port}/",
    "http:/127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "http://127.0.0.1:{port}:80/",
    "http://127.0.0.1%2e:{port}/",
    "http://%31%32%37.0.0.1:{port}/",
    "http://127.0.0.1%00.example.com:{port}/",
    "http://127.0.0.1\x00.example.com:{port}/",
    "http://127.0.0.1\t:{port}/",
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/\r\nHost: example.com",
    "http://exa\u200bmple@127.0.0.1:{port}/",
    "http://127.0.0.1 :{port}/",
    "http://127.0.0.1;example.com:{port}/",
    "http://127.0.0.1,example.com:{port}/",
    # other doors
    "file:///etc/passwd",
    "ftp://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/_x",
    "unix:///var/run/docker.sock",
    "tcp://127.0.0.1:{port}/",
    "ws://127.0.0.1:{port}/",
    "http+unix://127.0.0.1:{port}/",
    "javascript:alert(1)",
    # names
    "http://loopback.test:{port}/",
    "https://loopback.test:{port}/",
    "http://loopback6.test:{port}/",
    "http://mapped.test:{port}/",
    "http://metadata.test:{port}/",
    "http://mixed.test:{port}/",
    "https://mixed.test:{port}/",
    "http://mixed6.test:{port}/",
    "http://private.test:{port}/",
    "http://nat64.test:{port}/",
    "http://unspecified.test:{port}/",
    "http://sixtofour.test:{port}/",
    "http://scoped.test:{port}/",
]

NAMES = {
    "loopback.test": ["127.0.0.1"],
    "loopback6.test": ["::1"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "metadata.test": ["169.254.169.254"],
    "mixed.test": ["93.184.216.34", "127.0.0.1"],
    "mixed6.test": ["2606:4700::1", "93.184.216.34", "::1"],
    "private.test": ["10.0.0.1"],
    "nat64.test": ["64:ff9b::7f00:1"],
    "unspecified.test": ["0.0.0.0"],
    "sixtofour.test": ["2002:7f00:1::"],
    "scoped.test": ["fe80::1%1"],
}


def hostile_lookup(host: str) -> list[str]:
    if host in NAMES:
        return NAMES[host]
    flags = socket.AI_NUMERICHOST
    return [str(place[0]) for *_, place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)]
