// bind/module.cpp: the native module; one register function per binding file, one of which fronts a folder of core/.
#include "bind/module.h"

NB_MODULE(_core, m) {
  m.doc() = "Millstream's native core: records, order, store, batches and the ring that fills them.";
  nb::set_leak_warnings(false);  // a script may end with a batch in its hands
  register_memory(m);
  register_kernels(m);
  register_text(m);
  register_parse(m);
  register_filter(m);
  register_store(m);
  register_order(m);
  register_fill(m);
  register_chat(m);
  register_rl(m);
  register_chess(m);
}
