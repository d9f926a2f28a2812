/* The runtime packages lack this header, but cudaProfilerTypedefs.h includes it. The driver exports these three. */
typedef unsigned int CUoutput_mode;
CUresult CUDAAPI cuProfilerInitialize(const char *configFile, const char *outputFile, CUoutput_mode outputMode);
CUresult CUDAAPI cuProfilerStart(void);
CUresult CUDAAPI cuProfilerStop(void);
