{{/* Kubelet's folders for DRA drivers. Kubelet gets the path of the driver's socket, so a folder has the same path in the container. */}}
{{- define "sluice.kubeletFolder" -}}
{{ .Values.nodeAgent.hostPaths.kubelet | default "/var/lib/kubelet" }}
{{- end }}

{{- define "sluice.claimMounts" -}}
- { name: plugins-registry, mountPath: {{ include "sluice.kubeletFolder" . }}/plugins_registry }
- { name: claims, mountPath: {{ include "sluice.kubeletFolder" . }}/plugins/gpu.sluice.dev }
{{- end }}

{{- define "sluice.claimVolumes" -}}
- name: plugins-registry
  hostPath: { path: {{ include "sluice.kubeletFolder" . }}/plugins_registry, type: DirectoryOrCreate }
- name: claims
  hostPath: { path: {{ include "sluice.kubeletFolder" . }}/plugins/gpu.sluice.dev, type: DirectoryOrCreate }
{{- end }}
