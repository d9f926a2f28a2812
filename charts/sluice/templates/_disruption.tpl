{{/* A drain may evict one replica at a time, also the only one; otherwise its node could never be drained. */}}
{{- define "sluice.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "sluice.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  # A replica that is not ready serves nothing: its eviction need not wait until it is.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "sluice.selectorLabels" . | nindent 6 }}
{{- end }}
