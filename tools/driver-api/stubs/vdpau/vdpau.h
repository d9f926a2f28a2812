/* The VDPAU types that cudaVDPAU.h mentions. */
typedef unsigned int VdpDevice;
typedef unsigned int VdpVideoSurface;
typedef unsigned int VdpOutputSurface;
typedef void *VdpGetProcAddress;
