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
{{- include "sluice.imagePullSecrets" .root }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector:
  {{- include "sluice.imageNodes" $own.nodeSelector | nindent 2 }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Other charts write the secrets in `global` as bare names. */}}
{{- define "sluice.imagePullSecrets" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {{ kindIs "string" . | ternary (dict "name" .) . | toJson }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Labels of the nodes that can run the image: it is built for Linux on x86-64 alone. The argument adds to them. */}}
{{- define "sluice.imageNodes" -}}
{{- merge (dict "kubernetes.io/os" "linux" "kubernetes.io/arch" "amd64") (. | default dict) | toYaml }}
{{- end }}

{{/* The RuntimeClass of agents and pods; empty: the nodes' default runtime. NVIDIA's GPU Operator from 25.10 on leaves the default as it is. */}}
{{- define "sluice.runtimeClassName" -}}
{{- if not (kindIs "invalid" .Values.runtimeClassName) -}}
{{ .Values.runtimeClassName }}
{{- else if eq (toString .Values.injection) "nri" -}}
{{- else if lookup "node.k8s.io/v1" "RuntimeClass" "" "nvidia" -}}
nvidia
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

{{/* A process that needs nothing of the node. OpenShift assigns the user, and refuses others. */}}
{{- define "sluice.restricted" -}}
runAsNonRoot: true
{{- if not .Values.openshift.enabled }}
runAsUser: 65532
runAsGroup: 65532
{{- end }}
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
