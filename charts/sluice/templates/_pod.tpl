{{/* What the pods of all components have in common. */}}

{{/* Annotations by which a Prometheus with the usual pod discovery finds the metrics. */}}
{{- define "sluice.scrapeAnnotations" -}}
{{- if .root.Values.metrics.podAnnotations -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/* The fields of a pod's specification that the values of its component decide. */}}
{{- define "sluice.podSettings" -}}
{{- $own := get .root.Values (include "sluice.valuesKey" .) -}}
serviceAccountName: {{ include "sluice.serviceAccountName" . }}
{{- with .root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The argument is the name of the port that serves the probes. */}}
{{- define "sluice.probes" -}}
livenessProbe:
  httpGet: { path: /livez, port: {{ . }} }
  periodSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: {{ . }} }
  periodSeconds: 2
{{- end }}

{{/* The log level and format, the pod's own name, and what the values add. */}}
{{- define "sluice.environment" -}}
{{- $own := get .root.Values (include "sluice.valuesKey" .) -}}
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: POD_NAMESPACE
  valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
{{- with .root.Values.logLevel }}
- { name: RUST_LOG, value: {{ . | quote }} }
{{- end }}
{{- with .root.Values.logFormat }}
- { name: SLUICE_LOG_FORMAT, value: {{ . | quote }} }
{{- end }}
{{- with $own.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A process that needs nothing of the node. */}}
{{- define "sluice.restricted" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{/* Replicas on different nodes, where there are several. */}}
{{- define "sluice.spread" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "sluice.selectorLabels" . | nindent 12 }}
{{- end }}
