/* The two OpenGL types that cudaGL.h mentions. */
typedef unsigned int GLuint;
typedef unsigned int GLenum;
