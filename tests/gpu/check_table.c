/* Compares our table of driver functions with the driver of this machine.
 *
 *     cc -O1 -o check_table check_table.c -ldl && ./check_table driver-table.txt > check-table.json
 *
 * driver-table.txt has one "symbol name since flags" per line. Three questions:
 *   rows     for each row that the driver exports: is cuGetProcAddress_v2(name, since, flags) the exported symbol?
 *   lookups  for each name, at every version that the table knows and with flags 0, 1 and 2: does the rule of
 *            sluice_driver_api::lookup (newest ABI not newer than the version; the per-thread one where it is asked for and
 *            is as new) name the function that the driver gives?
 *   exports  which symbols cu[A-Z]* does the driver export that the table lacks, and the other way round?
 * Exit status 0 if rows and lookups have no mismatch.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_ROWS = 4096, MAX_SHOWN = 400 };

struct row {
    char symbol[96], name[96];
    int since;
    unsigned long long flags;
    void *address;
};

static struct row rows[MAX_ROWS];
static int count;
static int (*get_proc)(const char *, void **, int, uint64_t, int *);

static void *ask(const char *name, int version, uint64_t flags)
{
    void *found = NULL;
    int status = 0, result = get_proc(name, &found, version, flags, &status);
    return result == 0 && status == 0 ? found : NULL;
}

/* The row that the table's rule names for a name. */
static const struct row *expected(const char *name, int version, uint64_t flags)
{
    const struct row *best = NULL;
    unsigned long long wanted = 0;
    for (int i = 0; i < count; i++)
        if (!strcmp(rows[i].name, name) && rows[i].flags == 2 && (flags & 2))
            wanted = 2; /* a name with per-thread variants has no other answer to flag 2 */
    for (int i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        if (strcmp(row->name, name) || row->since > version || row->flags != wanted)
            continue;
        if (!best || row->since > best->since)
            best = row;
    }
    return best;
}

/* The symbol of an address: a name from the table, else what the loader knows. */
static const char *named(void *address)
{
    for (int i = 0; address && i < count; i++)
        if (rows[i].address == address)
            return rows[i].symbol;
    Dl_info info;
    if (address && dladdr(address, &info) && info.dli_sname)
        return info.dli_sname;
    return address ? "unnamed" : "none";
}

static int known(const char *symbol)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(rows[i].symbol, symbol))
            return 1;
    return 0;
}

/* Calls `each` with every defined function in the library's dynamic symbols. */
static int for_each_export(const char *path, void (*each)(const char *))
{
    int fd = open(path, O_RDONLY);
    struct stat info;
    if (fd < 0 || fstat(fd, &info))
        return -1;
    const char *file = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED)
        return -1;
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM)
            continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(file + sections[i].sh_offset);
        const char *strings = file + sections[sections[i].sh_link].sh_offset;
        for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++)
            if (symbols[s].st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC)
                each(strings + symbols[s].st_name);
    }
    return 0;
}

static int exported, unlisted;

static void look(const char *symbol)
{
    if (strncmp(symbol, "cu", 2) || symbol[2] < 'A' || symbol[2] > 'Z')
        return;
    exported++;
    if (!known(symbol))
        printf("%s\"%s\"", unlisted++ ? ", " : "", symbol);
}

static int compare_numbers(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!file) {
        fprintf(stderr, "usage: check_table driver-table.txt\n");
        return 2;
    }
    while (count < MAX_ROWS && fscanf(file, "%95s %95s %d %llu", rows[count].symbol, rows[count].name, &rows[count].since, &rows[count].flags) == 4)
        count++;
    fclose(file);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "check_table: %s\n", dlerror());
        return 2;
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*get_version)(int *) = (int (*)(int *))dlsym(driver, "cuDriverGetVersion");
    get_proc = (int (*)(const char *, void **, int, uint64_t, int *))dlsym(driver, "cuGetProcAddress_v2");
    struct link_map *map = NULL;
    int version = 0;
    if (!init || init(0) || !get_version || get_version(&version) || !get_proc || dlinfo(driver, RTLD_DI_LINKMAP, &map)) {
        fprintf(stderr, "check_table: the driver does not start, or has no cuGetProcAddress_v2\n");
        return 2;
    }
    int lacking = 0, newer = 0;
    printf("{\"driver_version\": %d, \"library\": \"%s\", \"rows\": %d,\n \"driver_lacks\": [", version, map->l_name, count);
    for (int i = 0; i < count; i++) {
        rows[i].address = dlsym(driver, rows[i].symbol);
        if (!rows[i].address && rows[i].since > version)
            newer++;
        else if (!rows[i].address)
            printf("%s\"%s\"", lacking++ ? ", " : "", rows[i].symbol);
    }
    printf("],\n \"newer_than_driver\": %d,\n \"table_lacks\": [", newer);
    if (for_each_export(map->l_name, look))
        fprintf(stderr, "check_table: cannot read %s\n", map->l_name);
    printf("],\n \"exported\": %d,\n \"row_mismatches\": [", exported);

    int wrong = 0, compared = 0;
    for (int i = 0; i < count; i++) {
        if (!rows[i].address || rows[i].since > version)
            continue;
        void *given = ask(rows[i].name, rows[i].since, rows[i].flags);
        compared++;
        if (given != rows[i].address && wrong++ < MAX_SHOWN)
            printf("%s\n  [\"%s\", %d, %llu, \"table: %s\", \"driver: %s\"]", wrong > 1 ? "," : "", rows[i].name, rows[i].since, rows[i].flags, rows[i].symbol, named(given));
    }
    printf("],\n \"rows_compared\": %d, \"row_mismatch_count\": %d,\n \"lookup_mismatches\": [", compared, wrong);

    static int versions[MAX_ROWS];
    int kinds = 0;
    for (int i = 0; i < count; i++)
        if (rows[i].since <= version)
            versions[kinds++] = rows[i].since;
    versions[kinds++] = version;
    qsort(versions, (size_t)kinds, sizeof *versions, compare_numbers);
    int lookups = 0, bad = 0, kept = 0, unnamed = 0;
    for (int i = 0; i < count; i++) {
        int first = 1;
        const void *shown[3] = {NULL, NULL, NULL};
        for (int j = 0; j < i && first; j++)
            first = strcmp(rows[i].name, rows[j].name) != 0;
        for (int v = 0; first && v < kinds; v++) {
            if (v && versions[v] == versions[v - 1])
                continue;
            for (unsigned long long flags = 0; flags <= 2; flags++) {
                const struct row *row = expected(rows[i].name, versions[v], flags);
                void *given = ask(rows[i].name, versions[v], flags);
                lookups++;
                /* A function that this driver lacks altogether is no fault of the rule. */
                if (row && !row->address && !given)
                    continue;
                if (given == (row ? row->address : NULL))
                    continue;
                bad++;
                unnamed += given && !strcmp(named(given), "unnamed");
                /* Each row that the rule names wrongly is shown once, at the first version. */
                if (shown[flags] != (row ? (const void *)row : "none") && kept++ < MAX_SHOWN)
                    printf("%s\n  [\"%s\", %d, %llu, \"table: %s\", \"driver: %s\"]", kept > 1 ? "," : "", rows[i].name, versions[v], flags, row ? row->symbol : "none", named(given));
                shown[flags] = row ? (const void *)row : "none";
            }
        }
    }
    printf("],\n \"lookups\": %d, \"lookup_mismatch_count\": %d,\n \"given_by_addresses_without_a_symbol\": %d, \"ok\": %s}\n", lookups, bad, unnamed, wrong || bad ? "false" : "true");
    return wrong || bad ? 1 : 0;
}
