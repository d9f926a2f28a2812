/* Frames of docs/reference/wire.md, as a program sends them that forges them. */
#pragma once
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { REQUEST = 80, ANSWER = 40, MEM_UPDATE = 2, ATTACH = 16, TOKEN = 1, MEMORY = 0 };

/* Begins a frame with the name "x", which the manager does not use on a node with an agent; returns where the payload goes. */
__attribute__((unused)) static unsigned char *frame(unsigned char *bytes, int32_t id, uint32_t type) {
    memset(bytes, 0, REQUEST);
    bytes[0] = 1;
    bytes[8] = 'x';
    memcpy(bytes + 10, &id, 4);
    memcpy(bytes + 14, &type, 4);
    return bytes + 18;
}

/* A context to be announced, with `channels` channels from `first_channel` on. */
typedef struct { uint32_t client, subdevice, group, first_channel, channels; } Context;

/* Connects to the manager and attaches one channel with these contexts, on the driver's file `file`. Returns the descriptor. */
__attribute__((unused)) static int forge_attach_with(const char *socket_path, uint32_t channel, const Context *contexts, uint32_t count,
                                                     int file) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, socket_path, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    uint32_t payload[9 + 64 * 69] = {0x54414c53 /* SLAT */, 3, (uint32_t)getpid(), 0, 0, 0, 0, 0, count}, words = 9;
    for (uint32_t at = 0; at < count; at++) {
        Context context = contexts[at];
        uint32_t fixed[] = {0, context.client, context.subdevice, context.group, context.channels};
        memcpy(payload + words, fixed, sizeof fixed);
        words += 5;
        for (uint32_t next = 0; next < context.channels; next++) payload[words++] = context.first_channel + next;
    }
    int memory = memfd_create("payload", MFD_ALLOW_SEALING);
    EXPECT(memory >= 0 && write(memory, payload, words * 4) == (ssize_t)(words * 4));
    EXPECT(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0);
    unsigned char bytes[REQUEST], *at = frame(bytes, 1, ATTACH);
    uint32_t version = 1;
    memcpy(at, &version, 4);
    memcpy(at + 4, &channel, 4);
    int sent[2] = {memory, file};
    size_t len = count ? sizeof sent : sizeof memory;
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof sent)]; } control = {0};
    struct iovec part = {bytes, REQUEST};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(len)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(len), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), sent, len);
    EXPECT(sendmsg(fd, &message, 0) == REQUEST);
    close(memory);
    int32_t answer[ANSWER / 4];
    EXPECT(recv(fd, answer, ANSWER, MSG_WAITALL) == ANSWER && answer[1] == 0);
    return fd;
}

/* Connects to the manager and attaches one channel, without any context. Returns the descriptor. */
__attribute__((unused)) static int forge_attach(const char *socket_path, uint32_t channel) {
    return forge_attach_with(socket_path, channel, NULL, 0, -1);
}
