/* A private page with an unlimited grant, mapped over the grant page that the manager has sealed. */
#include "escape.h"
#include <sys/mman.h>

int main(void) {
    Gpu gpu = honest_tenant();
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    uint64_t *page = NULL;
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "sluice-grant")) page = (void *)strtoull(line, NULL, 16);
    fclose(maps);
    EXPECT(page);
    uint64_t words[512];
    memcpy(words, page, sizeof words);
    ATTEMPT();
    EXPECT(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
    memcpy(page, words, sizeof words);
    page[16] = page[17] = UINT64_MAX;
    page[18]++;
    page[48] = 0;
    page[64] = UINT64_MAX / 2;
    work(gpu);
    return 0;
}
