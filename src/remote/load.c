/* Finds and loads the plug-in.  It is never unloaded: it has threads of its own. */
#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "remote/plugin.h"

static _Atomic(const struct gap__remote_plugin *) loaded;

/* The file this code is in: the library, or a program that holds its objects. */
static void *beside(void) {
  Dl_info self;
  char path[PATH_MAX + sizeof GAP__REMOTE_PLUGIN];
  static const char here = 0;
  if (!dladdr(&here, &self) || !self.dli_fname) return NULL;
  const char *slash = strrchr(self.dli_fname, '/');
  if (!slash || slash - self.dli_fname >= PATH_MAX) return NULL;
  snprintf(path, sizeof path, "%.*s/" GAP__REMOTE_PLUGIN, (int)(slash - self.dli_fname), self.dli_fname);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

int gap__remote_load(const struct gap__remote_plugin **out, char *message, size_t bytes) {
  *out = atomic_load(&loaded);
  if (*out) return 0;
  void *library = beside();
  if (!library) library = dlopen(GAP__REMOTE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(message, bytes, "no remote servers: %s", why ? why : GAP__REMOTE_PLUGIN " cannot be loaded");
    return GAP_ENOTSUP;
  }
  gap__remote_plugin_fn *entry;
  *(void **)&entry = dlsym(library, GAP__REMOTE_SYMBOL);
  const struct gap__remote_plugin *plugin = entry ? entry() : NULL;
  if (!plugin || plugin->abi != GAP__REMOTE_ABI) {
    snprintf(message, bytes, "no remote servers: " GAP__REMOTE_PLUGIN " is of another version of gapless");
    dlclose(library);
    return GAP_ENOTSUP;
  }
  atomic_store(&loaded, plugin);
  return *out = plugin, 0;
}
