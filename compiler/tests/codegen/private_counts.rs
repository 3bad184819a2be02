// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that count in private arrays run one item at a time.

use tally_compiler::widen::widen;

use crate::harness::{clang, module};

#[test]
fn kernels_that_mostly_count_in_private_arrays_are_not_widened() {
    let most = "uint m = 0; for (int i = 0; i < 256; i++) m = max(m, (uint)h[i]); out[x] = m;";
    let zero = "for (int i = 0; i < 256; i++) h[i] = 0;";
    let long = "d = d * 5 + 1; d ^= d >> 3;\n".repeat(20);
    let much = "d = d * 5 + 1; d ^= d >> 3;\n".repeat(40);
    let text = format!(
        "kernel void yes_count(global uint *out, global const uchar *in, int k) {{
           uint h[256]; int x = get_global_id(0); {zero}
           for (int i = 0; i < k; i++) h[in[x + i]]++;
           {most}
         }}
         kernel void yes_components(global float *out, global const float4 *in, int k) {{
           float4 h[256]; int x = get_global_id(0);
           for (int i = 0; i < 256; i++) h[i] = 0;
           for (int i = 0; i < k; i++) {{
             float4 v = clamp(in[x + i * k], 0.0f, 1.0f) * 255;
             h[(int)v.x].x += 1; h[(int)v.y].y += 1; h[(int)v.z].z += 1; h[(int)v.w].w += 1;
           }}
           float4 m = 0; for (int i = 0; i < 256; i++) m = fmax(m, h[i]);
           out[x] = m.x + m.y + m.z + m.w;
         }}
         kernel void no_read(global uint *out, global const uchar *in, int k) {{
           uint h[256]; int x = get_global_id(0); uint s = 0;
           for (int i = 0; i < 256; i++) h[i] = in[x + i];
           for (int i = 0; i < k; i++) s += h[in[x + i]];
           out[x] = s;
         }}
         kernel void no_write(global uint *out, global const uchar *in, int k) {{
           uint h[256]; int x = get_global_id(0); {zero}
           for (int i = 0; i < k; i++) h[in[x + i]] = i;
           {most}
         }}
         kernel void no_same_place(global uint *out, global const uchar *in, int k) {{
           uint h[256]; int x = get_global_id(0); {zero}
           for (int i = 0; i < k; i++) h[i]++;
           {most}
         }}
         kernel void no_long(global uint *out, global const uint *in, int k) {{
           uint h[256]; int x = get_global_id(0); {zero}
           for (int i = 0; i < k; i++) {{ uint d = in[x + i]; {long} h[d & 255]++; }}
           {most}
         }}
         kernel void yes_few_rows(global uint *out, global const uchar *in, int w) {{
           uint h[256]; int x = get_global_id(0); {zero}
           #pragma unroll 1
           for (int i = 0; i < 50; i++) h[in[x + i * w]]++;
           {most}
         }}
         kernel void yes_window(global uint *out, global const uchar *in, int w, int r) {{
           uint h[256]; int x = get_global_id(0); {zero}
           for (int i = -r; i <= r; i++) for (int j = -r; j <= r; j++) h[in[x + i + j * w]]++;
           {most}
         }}
         kernel void no_rows_of_groups(global uint *out, global const uchar *in, int w, int h) {{
           uint c[256]; int x = get_global_id(0), n = get_global_size(0);
           for (int i = 0; i < 256; i++) c[i] = 0;
           for (int i = 0; i < h; i++) for (int j = x; j < w; j += n) c[in[i * w + j]]++;
           uint m = 0; for (int i = 0; i < 256; i++) m = max(m, c[i]); out[x] = m;
         }}
         kernel void no_strides(global uint *out, global const uchar *in, int w) {{
           uint h[256]; int x = get_global_id(0), n = get_global_size(0); {zero}
           for (int j = x; j < w; j += n) h[in[j]]++;
           {most}
         }}
         kernel void no_columns(global uint *out, global const uchar *in, int w, int k) {{
           uint h[256]; int x = get_global_id(0); {zero}
           for (int i = 0; i < k; i++) h[in[x + i * w]]++;
           {most}
         }}
         kernel void no_small(global uint *out, global const uchar *in, int k) {{
           uint h[32]; int x = get_global_id(0); uint m = 0;
           for (int i = 0; i < 32; i++) h[i] = 0;
           for (int i = 0; i < k; i++) h[in[x + i] & 31]++;
           for (int i = 0; i < 32; i++) m = max(m, h[i]);
           out[x] = m;
         }}
         kernel void no_beside(global uint *out, global const uint *in, int k) {{
           uint h[256]; int x = get_global_id(0); {zero}
           for (int i = 0; i < k; i++) h[in[x + i] & 255]++;
           uint d = in[x];
           for (int i = 0; i < k; i++) {{ {much} }}
           h[0] += d;
           {most}
         }}
         kernel void no_loop(global uint *out, global const uchar *in, int k) {{
           uint h[256]; int x = get_global_id(0); {zero}
           h[in[x]]++;
           {most}
         }}"
    );
    let module = module(&clang::compile_text(&text, &["-O2", "-w"]));
    for kernel in &module.kernels {
        let refused = kernel.name.starts_with("yes");
        assert_eq!(widen(&module, kernel, 16).is_err(), refused, "{}", kernel.name);
    }
}
