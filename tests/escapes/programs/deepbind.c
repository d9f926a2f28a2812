/* deepbind [BYTES]: a host without any call of the driver opens a plug-in with RTLD_DEEPBIND. The loader then binds the plug-in's calls to
 * the libraries that it is linked against before those that are preloaded. */
#include "escape.h"
#include <libgen.h>
#include <limits.h>

int main(int argc, char **argv) {
    char path[PATH_MAX] = {0}, plugin[PATH_MAX + 32];
    EXPECT(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    snprintf(plugin, sizeof plugin, "%s/libdeepbind_plugin.so", dirname(path));
    void *handle = dlopen(plugin, RTLD_NOW | RTLD_DEEPBIND);
    EXPECT(handle);
    void (*run)(size_t) = (void (*)(size_t))dlsym(handle, "run_plugin");
    EXPECT(run);
    ATTEMPT();
    run(argc > 1 ? strtoull(argv[1], NULL, 0) : 0);
    return 0;
}
