/* The same program as in tests/escapes. */
#include "../../escapes/programs/own_ioctls.c"
