{{/* Nodes that are labelled as having an NVIDIA GPU, by the GPU Operator, Node Feature Discovery, GKE, or an administrator. */}}
{{- define "sluice.gpuNodes" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      {{- range list "nvidia.com/gpu.present" "feature.node.kubernetes.io/pci-10de.present" "feature.node.kubernetes.io/pci-0302_10de.present" "feature.node.kubernetes.io/pci-0300_10de.present" "sluice.dev/gpu.present" }}
      - matchExpressions:
          - { key: {{ . }}, operator: In, values: ["true"] }
      {{- end }}
      - matchExpressions:
          - { key: cloud.google.com/gke-accelerator, operator: Exists }
{{- end }}

{{/* Capabilities of the agents: those for the inspection of processes. */}}
{{- define "sluice.agentCapabilities" -}}
{{ has (toString .Values.nodeAgent.adopt) (list "off" "false") | ternary list (list "SYS_PTRACE" "DAC_READ_SEARCH" "DAC_OVERRIDE") | toJson }}
{{- end }}

{{/* Not empty if the agents evict pods. */}}
{{- define "sluice.agentEvicts" -}}
{{- if or (eq (toString .Values.nodeAgent.violationPolicy) "evict") (eq (toString .Values.nodeAgent.lostGpuPolicy) "evict") }}true{{ end }}
{{- end }}

{{/* The folder of the library and of the agents' state on the nodes. */}}
{{- define "sluice.stateFolder" -}}
{{ .Values.nodeAgent.hostPaths.state | default "/var/lib/sluice" }}
{{- end }}

{{- define "sluice.devicePluginFolder" -}}
{{ .Values.nodeAgent.hostPaths.devicePlugins | default "/var/lib/kubelet/device-plugins" }}
{{- end }}

{{/* Flags for folders that differ from the program's own defaults. */}}
{{- define "sluice.hostPathFlags" -}}
{{- $paths := .Values.nodeAgent.hostPaths -}}
{{- include "sluice.flag" (list "state-folder" $paths.state) }}
{{- with $paths.nri }}
- {{ printf "--nri-socket=%s/nri.sock" . | quote }}
{{- end }}
{{- range $paths.cdi }}
- {{ printf "--cdi-folder=%s" . | quote }}
{{- end }}
{{- end }}

{{- define "sluice.nodeAgentFlags" -}}
{{- $own := .Values.nodeAgent -}}
{{- if .Values.dra.enabled }}
- --dra
{{- include "sluice.flag" (list "kubelet-folder" $own.hostPaths.kubelet) }}
{{- if not (kindIs "invalid" .Values.webhook.sandboxRuntimeClasses) }}
- {{ printf "--sandbox-runtime-classes=%s" (join "," .Values.webhook.sandboxRuntimeClasses) | quote }}
{{- end }}
{{- end }}
{{- include "sluice.flag" (list "seats-per-gpu" $own.seatsPerGpu) }}
{{- include "sluice.flag" (list "injection" .Values.injection) }}
{{- include "sluice.listenFlag" (dict "root" . "flag" "http" "default" 9400) }}
{{- include "sluice.hostPathFlags" . }}
{{- include "sluice.flag" (list "context-reserve" $own.contextReserve) }}
{{- include "sluice.flag" (list "host-memory" $own.hostMemory) }}
{{- include "sluice.flag" (list "on-manager-loss" $own.onManagerLoss) }}
{{- with $own.healthPort }}
{{- $taken := dict "9400" "metrics" "9407" "state" }}
{{- if has (toString $.Values.injection) (list "auto" "nri") }}{{ $_ := set $taken "9406" "own-driver's probe" }}{{ end }}
{{- with get $taken (toString (int64 .)) }}
{{- fail (printf "nodeAgent.healthPort is %v, expected another port: the agent serves its %s there" (int64 $own.healthPort) .) }}
{{- end }}
- {{ printf "--health=%v" (int64 .) | quote }}
{{- end }}
{{- /* YAML reads a bare `off` in a values file as false. */}}
{{- range $flag, $value := dict "controls" $own.controls "mig" $own.mig "adopt" (kindIs "invalid" $own.adopt | ternary "auto" $own.adopt) "self-test" $own.selfTest }}
{{- include "sluice.flag" (list $flag (eq (toString $value) "false" | ternary "off" $value)) }}
{{- end }}
{{- include "sluice.flag" (list "violation-policy" $own.violationPolicy) }}
{{- include "sluice.flag" (list "lost-gpu-policy" $own.lostGpuPolicy) }}
{{- include "sluice.flag" (list "lost-gpu-grace-seconds" $own.lostGpuGraceSeconds) }}
{{- include "sluice.flag" (list "turn-ms" $own.turnMs) }}
{{- include "sluice.flag" (list "gpu-look-every-ms" $own.gpuLookEveryMs) }}
{{- include "sluice.flag" (list "gpu-good-looks" $own.gpuGoodLooks) }}
{{- range $flag, $xids := dict "ignore-xids" $own.ignoreXids "critical-xids" $own.criticalXids }}
{{- with $xids }}
{{- $numbers := list }}
{{- range . }}{{ $numbers = append $numbers (int64 .) }}{{ end }}
{{- include "sluice.flag" (list $flag (join "," $numbers)) }}
{{- end }}
{{- end }}
{{- if $own.profiles }}
- --profiles=/etc/sluice/profiles.yaml
{{- end }}
{{- if .Values.policy }}
- --policy-file=/etc/sluice/policy.yaml
{{- end }}
{{- range $own.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
