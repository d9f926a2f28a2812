// Ends the program if a call of the driver or of REEF's interface fails.
#pragma once

#include <cstdio>
#include <cstdlib>

#define DO(call)                                                                                                       \
    do {                                                                                                               \
        const int answer_ = static_cast<int>(call);                                                                    \
        if (answer_ != 0) {                                                                                            \
            std::fprintf(stderr, "%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, answer_);                       \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)
