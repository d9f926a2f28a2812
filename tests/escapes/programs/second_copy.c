/* A second copy of the driver library under another name, next to the one that the hook governs. argv[1]: where to put the copy. */
#include "escape.h"
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
    EXPECT(argc > 1);
    honest_tenant();
    ATTEMPT();
    struct stat info;
    int from = open(library("libcuda")->l_name, O_RDONLY), to = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0755);
    EXPECT(from >= 0 && to >= 0 && fstat(from, &info) == 0);
    for (off_t done = 0; done < info.st_size;) EXPECT(sendfile(to, from, &done, (size_t)(info.st_size - done)) > 0);
    close(from);
    close(to);
    char path[256];
    snprintf(path, sizeof path, "./%s", argv[1]);
    void *copy = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    EXPECT(copy);
    Driver driver = driver_by(walk_elf, copy);
    work_by(&driver);
    return 0;
}
