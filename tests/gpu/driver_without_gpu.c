// A driver that finds no GPU: what the CUDA runtime asks of it, answered with error 100. So the
// check sees this error, too, on a machine without any driver, whose error is 35.
#include <string.h>

enum { kNoDevice = 100, kVersion = 13000 };

static int no_device(void) { return kNoDevice; }

int cuInit(unsigned flags) {
  (void)flags;
  return kNoDevice;
}

int cuDriverGetVersion(int* version) {
  *version = kVersion;
  return 0;
}

int cuGetExportTable(const void** table, const void* id) {
  (void)id;
  *table = NULL;
  return kNoDevice;
}

int cuGetProcAddress_v2(const char* name, void** entry, int version, unsigned long long flags,
                        void* found) {
  (void)version;
  (void)flags;
  (void)found;
  if (strcmp(name, "cuDriverGetVersion") == 0) {
    *entry = (void*)cuDriverGetVersion;
  } else if (strncmp(name, "cuGetProcAddress", 16) == 0) {
    *entry = (void*)cuGetProcAddress_v2;
  } else {
    *entry = (void*)no_device;
  }
  return 0;
}

int cuGetProcAddress(const char* name, void** entry, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, entry, version, flags, NULL);
}
