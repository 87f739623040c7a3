/* As much of the HIP runtime and of hiprtc as one call of a kernel of three arguments asks for. What
   it is asked stands in `recorded`; handles use all 64 bits of a pointer. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MODULE ((void*)0x123456789abcdef0)
#define FUNCTION ((void*)0x0fedcba987654320)
#define PROGRAM ((void*)0x7777777766666660)
static const char ISA[] = "gfx942:sramecc+:xnack-";
static char text[1 << 14], code[256];

const char* recorded(void) { return text; }

static int note(const char* format, ...) {
  size_t at = strlen(text);
  va_list given;
  va_start(given, format);
  vsnprintf(text + at, sizeof text - at, format, given);
  va_end(given);
  return 0;
}

int hipInit(unsigned flags) { return note("init %u\n", flags); }
const char* hipGetErrorName(int status) { return "hipErrorOfTest"; }
const char* hipGetErrorString(int status) { return "a text"; }
int hipGetDeviceCount(int* count) { *count = 1; return 0; }
int hipGetDevice(int* device) { *device = 0; return 0; }
int hipSetDevice(int device) { return note("set %d\n", device); }
int hipGetDevicePropertiesR0600(char* into, int device) {
  memset(into, 0, 1472);
  strcpy(into, "a GPU in C");
  strcpy(into + 1160, ISA);
  return device;
}
int hipModuleLoadData(void** module, const void* image) {
  *module = MODULE;
  return note("load %s\n", (const char*)image);
}
int hipModuleGetFunction(void** function, void* module, const char* name) {
  *function = FUNCTION;
  return module == MODULE ? note("function %s\n", name) : 1;
}
int hipMallocAsync(void** place, size_t bytes, void* stream) { return 1; }
int hipFreeAsync(void* place, void* stream) { return 1; }
int hipMemsetAsync(void* place, int value, size_t bytes, void* stream) { return 1; }
int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* n, void* f, int t, size_t s) {
  return 1;
}
int hipModuleLaunchCooperativeKernel(
    void* f, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
    unsigned shared, void* stream, void** values) {
  return 1;
}
int hipModuleLaunchKernel(
    void* function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
    unsigned shared, void* stream, void** values, void** extra) {
  if (function != FUNCTION || stream || extra) return 1;
  note("launch %u %u %u of %u %u %u with %u:", x, y, z, tx, ty, tz, shared);
  return note(" %llx %x %llx\n", *(unsigned long long*)values[0], *(unsigned*)values[1],
              *(unsigned long long*)values[2]);
}

const char* hiprtcGetErrorString(int status) { return "an error"; }
int hiprtcCreateProgram(
    void** program, const char* source, const char* name, int n, const char** h, const char** i) {
  *program = PROGRAM;
  return n || h || i || !strstr(source, "scaled(") || strcmp(name, "scaled.hip");
}
int hiprtcCompileProgram(void* program, int count, const char** options) {
  snprintf(code, sizeof code, "code of %s", options[0] + strlen("--offload-arch="));
  return program != PROGRAM || count != 4;
}
int hiprtcDestroyProgram(void** program) { return *program != PROGRAM; }
int hiprtcGetProgramLogSize(void* program, size_t* size) { *size = 0; return 0; }
int hiprtcGetProgramLog(void* program, char* log) { return 0; }
int hiprtcGetCodeSize(void* program, size_t* size) { *size = strlen(code) + 1; return 0; }
int hiprtcGetCode(void* program, char* into) { strcpy(into, code); return 0; }
