// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that retry changes of local memory run one item at a time, and so do those in which one item of a group retries
//! changes in a loop.

use tally_compiler::widen::widen;

use crate::harness::{clang, module};

#[test]
fn kernels_that_mostly_retry_changes_of_memory_are_not_widened() {
    let each = "for (int i = get_global_id(0); i < n; i += get_global_size(0))";
    let count = "do { c = tag | ((s[d] & 0xffffff) + 1); s[d] = c; } while (s[d] != c);";
    let add = "uint old = *at, seen;
               do { seen = old; old = atomic_cmpxchg(at, seen, as_uint(as_float(seen) + 1)); } while (old != seen);";
    let begin =
        "local uint b[256]; volatile local uint *s = b; uint tag = get_local_id(0) << 24, c, d;
                 s[get_local_id(0)] = 0; barrier(CLK_LOCAL_MEM_FENCE);";
    let end = "barrier(CLK_LOCAL_MEM_FENCE); out[get_global_id(0)] = s[get_local_id(0)];";
    let long = "d = d * 5 + 1; d ^= d >> 3;\n".repeat(20);
    let text = format!(
        "kernel void yes_tags(global uint *out, global const uint *in, int n) {{
           {begin} {each} {{ d = in[i] & 255; {count} }} {end}
         }}
         kernel void yes_floats(global uint *out, global const uint *in, int n) {{
           {begin} {each} {{ volatile local uint *at = &s[in[i] & 255]; {add} }} {end}
         }}
         kernel void yes_global(global uint *out, global const uint *in, int n) {{
           {begin} {each} {{ volatile global uint *at = &out[in[i] & 255]; {add} }}
         }}
         kernel void yes_sums(global uint *out, global const uint *in, int n) {{
           volatile global uint *at = &out[in[get_global_id(0)] & 255]; {add}
         }}
         kernel void no_some(global uint *out, global const uint *in, int n) {{
           volatile global uint *at = &out[in[get_global_id(0)] & 255]; if (in[n] < in[get_global_id(0)]) {{ {add} }}
         }}
         kernel void no_largest(global uint *out, global const uint *in, int n) {{
           uint i = get_global_id(0), old = out[in[i] & 255], seen;
           while (old < i) {{
             seen = old; old = atomic_cmpxchg(&out[in[i] & 255], seen, i); if (old == seen) break;
           }}
         }}
         kernel void no_claim(global uint *out, global const uint *in, int n) {{
           uint i = get_global_id(0), d = in[i];
           while (atomic_cmpxchg(&out[d & 255], 0u, i + 1) != 0) d++;
         }}
         kernel void no_much(global uint *out, global const uint *in, int n) {{
           uint d = in[get_global_id(0)]; {long} volatile global uint *at = &out[d & 255]; {add}
         }}
         kernel void no_search(global uint *out, global const uint *in, int n) {{
           {begin} {each} {{ d = 0; while (in[d] < i) d = 2 * d + 1; d &= 255; {count} }} {end}
         }}
         kernel void no_long(global uint *out, global const uint *in, int n) {{
           {begin} {each} {{ d = in[i]; {long} d &= 255; {count} }} {end}
         }}
         kernel void no_loop(global uint *out, global const uint *in, int n) {{
           {begin} d = in[get_global_id(0)] & 255; {count} {end}
         }}
         kernel void yes_one(global uint *out, global const uint *in, int n) {{
           {begin} if (get_local_id(0) != 3) return;
           for (int i = 0; i < n; i++) {{ volatile global uint *at = &out[s[i & 255] & 255]; {add} }}
         }}
         kernel void no_once(global uint *out, global const uint *in, int n) {{
           {begin} for (int i = 0; i < n; i++) s[get_local_id(0)] += in[i];
           if (get_local_id(0) == 0) {{ volatile global uint *at = &out[in[n] & 255]; {add} }}
         }}
         kernel void no_row(global uint *out, global const uint *in, int n) {{
           {begin} if (get_local_id(1) != 0) return; d = n; {long} out[n] = d;
           for (int i = 0; i < n; i++) {{ volatile global uint *at = &out[s[i & 255] & 255]; {add} }}
         }}"
    );
    let module = module(&clang::compile_text(&text, &["-O2", "-w"]));
    for kernel in &module.kernels {
        let refused = kernel.name.starts_with("yes");
        assert_eq!(widen(&module, kernel, 16).is_err(), refused, "{}", kernel.name);
    }
}
