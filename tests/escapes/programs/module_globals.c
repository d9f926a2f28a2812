/* Memory that no call allocates: a module with global variables of argv[1] bytes. The driver takes it while it loads the module. */
#include "escape.h"

int main(int argc, char **argv) {
    EXPECT(argc > 1);
    char image[64];
    CUmodule module;
    honest_tenant();
    snprintf(image, sizeof image, "SLUICE-SIM 1\nglobal table bytes=%s\n", argv[1]);
    ATTEMPT();
    DO(cuModuleLoadData(&module, image));
    rest();
    return 0;
}
