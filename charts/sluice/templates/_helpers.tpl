{{/* Names, labels and images. Components are "node-agent", "scheduler" and "webhook". */}}

{{- define "sluice.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 32 | trimSuffix "-" }}
{{- end }}

{{/* The release's name, with the chart's name in it; short enough to append a component and a hash. */}}
{{- define "sluice.fullname" -}}
{{- $name := include "sluice.name" . -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 32 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 32 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 32 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* include "sluice.componentName" (dict "root" $ "component" "webhook") */}}
{{- define "sluice.componentName" -}}
{{ include "sluice.fullname" .root }}-{{ .component }}
{{- end }}

{{- define "sluice.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sluice.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selectorLabels" . }}
app.kubernetes.io/part-of: sluice
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of pods: without the chart's version, which would restart the pods at every upgrade. */}}
{{- define "sluice.podLabels" -}}
{{ include "sluice.selectorLabels" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* metadata's name, namespace and labels of an object of a component; cluster: true for one without a namespace */}}
{{- define "sluice.metadata" -}}
name: {{ include "sluice.componentName" . }}
{{- if not .cluster }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
labels:
  {{- include "sluice.labels" . | nindent 2 }}
{{- end }}

{{- define "sluice.serviceAccountName" -}}
{{- $component := get .root.Values (include "sluice.valuesKey" .) -}}
{{- $component.serviceAccountName | default (include "sluice.componentName" .) }}
{{- end }}

{{/* "node-agent" is nodeAgent in the values. */}}
{{- define "sluice.valuesKey" -}}
{{ .component | camelcase | untitle }}
{{- end }}

{{/* include "sluice.imageOf" (dict "root" $ "image" .Values.image "tag" .Chart.AppVersion) */}}
{{- define "sluice.imageOf" -}}
{{- $registry := .root.Values.global.imageRegistry | default .image.registry -}}
{{- $name := .image.repository -}}
{{- if $registry }}{{ $name = printf "%s/%s" $registry $name }}{{ end }}
{{- if .image.digest }}{{ printf "%s@%s" $name .image.digest }}
{{- else }}{{ printf "%s:%s" $name (.image.tag | default .tag | toString) }}
{{- end }}
{{- end }}

{{- define "sluice.image" -}}
{{ include "sluice.imageOf" (dict "root" . "image" .Values.image "tag" .Chart.AppVersion) }}
{{- end }}

{{/* A scheduler as old as the cluster, unless the values say otherwise; clouds append to the version (v1.34.4-gke.1). */}}
{{- define "sluice.kubeSchedulerImage" -}}
{{- $tag := regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version -}}
{{- include "sluice.imageOf" (dict "root" . "image" .Values.scheduler.kubeScheduler.image "tag" $tag) }}
{{- end }}

{{/*
The address and port of a listener, if the values state one of them: the program's own default holds otherwise.
include "sluice.listenFlag" (dict "root" $ "flag" "listen" "port" .Values.webhook.port "default" 9443)
*/}}
{{- define "sluice.listenFlag" -}}
{{- $address := .root.Values.listenAddress -}}
{{- if or $address .port }}
{{- $host := $address | default "::" }}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end }}
- {{ printf "--%s=%s:%d" .flag $host (int64 (.port | default .default)) | quote }}
{{- end }}
{{- end }}

{{/* One flag, if its value is set: the binary's own default holds otherwise. */}}
{{- define "sluice.flag" -}}
{{- $value := index . 1 -}}
{{- if not (kindIs "invalid" $value) }}
{{- if kindIs "float64" $value }}{{ $value = int64 $value }}{{ end }}
- {{ printf "--%s=%v" (index . 0) $value | quote }}
{{- end }}
{{- end }}
