// bind/module.cpp: the native module; one register function per binding file.
#include "bind/module.h"

NB_MODULE(_core, m) {
  m.doc() = "Millstream's native core: records, order, store, batches and the ring that fills them.";
  nb::set_leak_warnings(false);  // a script may end with a batch in its hands
  register_compression(m);
  register_records(m);
  register_chats(m);
  register_advantages(m);
  register_store(m);
  register_order(m);
  register_engine(m);
  register_pool(m);
  register_sources(m);
  register_rollouts(m);
  register_rollout_records(m);
  register_tar(m);
  register_games(m);
  register_positions(m);
}
