"""A manager that gives every client an unlimited grant, for tests of the hook alone.

Every client has all memory. `contenders` and `critical` are written to the pages of all clients at once.
"""

import array
import fcntl
import mmap
import os
import socket
import struct
import threading

ATTACH, MEM_LIMIT, MEM_UPDATE, QUOTA, DETACH = 16, 1, 2, 0, 19
F_ADD_SEALS, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 2, 4
FLAGS, DEADLINE_TSC, DEADLINE_NS, EPOCH, CONTENDERS = 2, 16, 17, 18, 34
LATENCY_CRITICAL = 4
UNLIMITED = 2**64 - 1
PAGE_VERSION = 1


class StubManager:
    def __init__(self, path, critical=True, contenders=0):
        self.path, self.critical, self.contenders = str(path), critical, contenders
        self.pages, self.lock = [], threading.Lock()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def set_contenders(self, contenders, critical=True):
        with self.lock:
            self.contenders, self.critical = contenders, critical
            for page in self.pages:
                self._write(page)

    def _write(self, page):
        for word, value in ((FLAGS, LATENCY_CRITICAL if self.critical else 0), (CONTENDERS, self.contenders)):
            page[word * 8 : word * 8 + 8] = struct.pack("<Q", value)

    def _accept(self):
        while True:
            peer, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _page(self, magic, words):
        fd = os.memfd_create("sluice-stub", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, 4096)
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)
        page = mmap.mmap(fd, 4096)
        for word, value in {0: int.from_bytes(magic, "little"), 1: PAGE_VERSION, **words}.items():
            page[word * 8 : word * 8 + 8] = struct.pack("<Q", value)
        return fd, page

    def _serve(self, peer):
        while True:
            frame, _, _, _ = peer.recvmsg(80, socket.CMSG_SPACE(64))
            while 0 < len(frame) < 80:
                frame += peer.recv(80 - len(frame))
            if not frame:
                return
            (length,) = struct.unpack_from("<Q", frame)
            number, kind = struct.unpack_from("<iI", frame, 9 + length)
            payload, fds = frame[17 + length :], []
            if kind == ATTACH:
                _, channel = struct.unpack_from("<II", payload)
                answer = struct.pack("<iII", number, 0, PAGE_VERSION)
                if channel == 1:
                    grant, page = self._page(b"SLUICEGR", {DEADLINE_TSC: UNLIMITED, DEADLINE_NS: UNLIMITED, EPOCH: 1})
                    report, _ = self._page(b"SLUICERP", {})
                    fds = [grant, report]
                    with self.lock:
                        self._write(page)
                        self.pages.append(page)
            elif kind == MEM_LIMIT:
                answer = struct.pack("<iQQ", number, 0, 2**40)
            elif kind == MEM_UPDATE:
                answer = struct.pack("<ii", number, 1)
            elif kind == QUOTA:
                answer = struct.pack("<id", number, 1000.0)
            elif kind == DETACH:
                answer = struct.pack("<ii", number, 0)
            else:
                continue
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            peer.sendmsg([answer.ljust(40, b"\0")], rights)
            for fd in fds:
                os.close(fd)
