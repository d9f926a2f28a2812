/* cudaEGL.h includes this file; egl.h beside it has all that is needed. */
