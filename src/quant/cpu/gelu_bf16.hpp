// SPDX-License-Identifier: Apache-2.0
// Engine zone: quadratic polynomials for the tails of GELU's two forms, from which GELU of every
// bf16 is computed.
#pragma once

namespace switchback::quant::cpu {

// The tail P(b) of quant/gelu.hpp as quadratics (c2·b + c1)·b + c0. The range of b, b <= 0, is cut
// at the middles between multiples of 1/8: the quadratic for n = round_half_even(8b) is element n
// mod 32 of each array. Many quadratics give the right bf16 from fma(b, P(b), max(x, 0)) for each x
// of either sign. A linear program for each range chose the one that stays furthest from wrong
// results. Tests compare all bf16.
struct GeluQuadratics {
  static constexpr float shift = 0x1.8p20f;  // added to b, it leaves n in the low bits
  static constexpr float end = 3.921875f;    // the largest -b; from here on, if x > 0, GELU(x) is x
  alignas(64) float c0[32];
  alignas(64) float c1[32];
  alignas(64) float c2[32];
};

inline constexpr GeluQuadratics gelu_tanh_quadratics = {
    {0x1.00001ep-1f, 0x1.6cd348p-8f, 0x1.20b39cp-7f, 0x1.d5a7bp-7f,  0x1.4093ccp-6f, 0x1.efa07ap-6f,
     0x1.4257d2p-5f, 0x1.ce5c34p-5f, 0x1.4c7e74p-4f, 0x1.aef0a8p-4f, 0x1.0271e6p-3f, 0x1.cd9964p-4f,
     0x1.831de4p-3f, 0x1.03017ap-2f, 0x1.1185a2p-2f, 0x1.585fbap-2f, 0x1.546fecp-2f, 0x1.85947ep-2f,
     0x1.b80cb2p-2f, 0x1.056626p-2f, 0x1.4d38bep-2f, 0x1.e3327ep-2f, 0x1.c3cba2p-2f, 0x1.306e96p-1f,
     0x1.1199b8p-1f, 0x1.12241ep-1f, 0x1.06ff92p-1f, 0x1.011c8cp-1f, 0x1.fd89b4p-2f, 0x1.06982p-1f,
     0x1.0059fcp-1f, 0x1.00211ap-1f},
    {0x1.98d2bp-2f,  0x1.61e716p-9f, 0x1.202a14p-8f, 0x1.e4d718p-8f, 0x1.528ba6p-7f, 0x1.0f8a1cp-6f,
     0x1.692c58p-6f, 0x1.0c4a4ap-5f, 0x1.91b2c4p-5f, 0x1.0c7e84p-4f, 0x1.4a8708p-4f, 0x1.1e9462p-4f,
     0x1.078644p-3f, 0x1.74013ap-3f, 0x1.8e638ep-3f, 0x1.092138p-2f, 0x1.05edd4p-2f, 0x1.371906p-2f,
     0x1.6f03d2p-2f, 0x1.21f80ap-3f, 0x1.b846bcp-3f, 0x1.9e0052p-2f, 0x1.6d8964p-2f, 0x1.3b9b3cp-1f,
     0x1.04f9dap-1f, 0x1.07ec44p-1f, 0x1.db3848p-2f, 0x1.b77d12p-2f, 0x1.9d7e34p-2f, 0x1.e783f2p-2f,
     0x1.a27434p-2f, 0x1.9e3c1ep-2f},
    {0x1.7fd39ap-7f, 0x1.582a8ep-12f, 0x1.207466p-11f, 0x1.f63cp-11f,  0x1.66e10ap-10f,
     0x1.2af19p-9f,  0x1.96bfa2p-9f,  0x1.393df2p-8f,  0x1.e8eaep-8f,  0x1.516994p-7f,
     0x1.aae6bep-7f, 0x1.653b26p-7f,  0x1.6b98b2p-6f,  0x1.0fb2dcp-5f, 0x1.2795a2p-5f,
     0x1.a25042p-5f, 0x1.9d5e86p-5f,  0x1.ffa718p-5f,  0x1.3dc7ecp-4f, 0x1.500a92p-7f,
     0x1.d2e6b6p-6f, 0x1.6db88cp-4f,  0x1.226a66p-4f,  0x1.730e72p-3f, 0x1.12c008p-3f,
     0x1.1ce4f8p-3f, 0x1.bd06d6p-4f,  0x1.50c864p-4f,  0x1.a7d6bap-5f, 0x1.1a2856p-3f,
     0x1.6b5b64p-5f, 0x1.2af94ap-5f},
};
inline constexpr GeluQuadratics gelu_erf_quadratics = {
    {0x1.00001ep-1f, 0x1.fe0258p-8f, 0x1.4fe17ap-7f, 0x1.efed72p-7f, 0x1.7d7bc8p-6f, 0x1.0330cep-5f,
     0x1.57f58ep-5f, 0x1.c420e8p-5f, 0x1.2c33f6p-4f, 0x1.bd5694p-4f, 0x1.002a18p-3f, 0x1.69caf4p-3f,
     0x1.85a0e2p-3f, 0x1.cea70ap-3f, 0x1.15ff96p-2f, 0x1.ce7c3cp-3f, 0x1.388dcap-2f, 0x1.85947ep-2f,
     0x1.91b3c2p-2f, 0x1.f4f1fap-2f, 0x1.56a78p-1f,  0x1.097806p-1f, 0x1.055bdcp-1f, 0x1.13db96p-1f,
     0x1.065cfcp-1f, 0x1.0dd922p-1f, 0x1.079ep-1f,   0x1.0b4f0ep-1f, 0x1.02278ep-1f, 0x1.04172ap-1f,
     0x1.0059fcp-1f, 0x1.00211ap-1f},
    {0x1.98d2bp-2f,  0x1.ee35dcp-9f, 0x1.4bec2ep-8f, 0x1.f9273ep-8f, 0x1.92d2dep-7f, 0x1.196c6p-6f,
     0x1.7fff8ap-6f, 0x1.03d534p-5f, 0x1.648c66p-5f, 0x1.15c0acp-4f, 0x1.46678cp-4f, 0x1.e53722p-4f,
     0x1.099eb8p-3f, 0x1.45e66ap-3f, 0x1.966d78p-3f, 0x1.3d0fcep-3f, 0x1.d43fccp-3f, 0x1.371906p-2f,
     0x1.43c394p-2f, 0x1.bc6298p-2f, 0x1.58b1e2p-1f, 0x1.e81902p-2f, 0x1.d95b42p-2f, 0x1.078fe6p-1f,
     0x1.dc50f6p-2f, 0x1.fc3442p-2f, 0x1.dec7fap-2f, 0x1.f7d7aap-2f, 0x1.ba9768p-2f, 0x1.cdc3e6p-2f,
     0x1.a27434p-2f, 0x1.9e3c1ep-2f},
    {0x1.7fd39ap-7f, 0x1.e095fep-12f, 0x1.493dfep-11f, 0x1.025fc8p-10f, 0x1.ab7316p-10f,
     0x1.333efp-9f,  0x1.af5d42p-9f,  0x1.2cbf24p-8f,  0x1.aaed16p-8f,  0x1.5ddac6p-7f,
     0x1.a47a32p-7f, 0x1.49a0dap-6f,  0x1.6f8916p-6f,  0x1.d316p-6f,    0x1.2f05fcp-5f,
     0x1.b34d46p-6f, 0x1.65fcc6p-5f,  0x1.ffa718p-5f,  0x1.0cf594p-4f,  0x1.9fbd28p-4f,
     0x1.72a9bcp-3f, 0x1.dfae06p-4f,  0x1.c59d46p-4f,  0x1.140b82p-3f,  0x1.c8142cp-4f,
     0x1.061004p-3f, 0x1.c6925p-4f,   0x1.0d70bcp-3f,  0x1.4e9edep-4f,  0x1.b12234p-4f,
     0x1.6b5b64p-5f, 0x1.2af94ap-5f},
};

/// How a kernel stores a bf16 result.
struct Bf16Stores {
  /// Whether vcvtne2ps2bf16 rounds the result. The bits are the same without that instruction.
  bool avx512_bf16 = false;
  bool past_caches = false;  ///< for whole cache lines, which vcvtne2ps2bf16 produces
};

}  // namespace switchback::quant::cpu
