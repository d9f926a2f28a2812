{{/* The certificate's secret: filled by the webhook itself, or by cert-manager. */}}
{{- define "sluice.webhookSecret" -}}
{{ include "sluice.componentName" (dict "root" . "component" "webhook") }}-certificate
{{- end }}

{{/*
Annotations of the webhook configurations. AKS's admissions enforcer adds to the namespaceSelector of webhooks that lack the first one,
and owns the field then: Helm 4's server-side apply refuses the next upgrade. The chart excludes kube-system itself.
*/}}
{{- define "sluice.webhookAnnotations" -}}
admissions.enforcer/disabled: "true"
{{- if .Values.webhook.certManager.enabled }}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/{{ include "sluice.componentName" (dict "root" . "component" "webhook") }}
{{- end }}
{{- end }}

{{/* Ports of the webhook's container. */}}
{{- define "sluice.webhookPort" -}}
{{ int64 (.Values.webhook.port | default 9443) }}
{{- end }}
{{- define "sluice.webhookMetricsPort" -}}
{{ int64 (.Values.webhook.metricsPort | default 9404) }}
{{- end }}

{{/* The namespaces whose annotated pods get claims, for webhook and extender. */}}
{{- define "sluice.claimsInFlag" -}}
{{- with .Values.dra.translateIn }}
{{- if not $.Values.dra.enabled }}
{{- fail (printf "dra.translateIn names %s, expected dra.enabled=true beside it: without it no node has claims" (join ", " .)) }}
{{- end }}
- {{ printf "--claims-in=%s" (join "," .) | quote }}
{{- end }}
{{- end }}

{{- define "sluice.webhookFlags" -}}
{{- $own := .Values.webhook -}}
{{- $name := include "sluice.componentName" (dict "root" . "component" "webhook") -}}
- {{ printf "--service=%s" $name | quote }}
{{- include "sluice.listenFlag" (dict "root" . "flag" "listen" "port" $own.port "default" 9443) }}
{{- include "sluice.listenFlag" (dict "root" . "flag" "metrics" "port" $own.metricsPort "default" 9404) }}
{{- if $own.certManager.enabled }}
- --cert-dir=/etc/sluice/certificate
{{- else }}
- {{ printf "--secret=%s" (include "sluice.webhookSecret" .) | quote }}
- {{ printf "--mutating-configuration=%s" $name | quote }}
- {{ printf "--validating-configuration=%s" $name | quote }}
{{- end }}
{{- with include "sluice.runtimeClassName" . }}
{{- include "sluice.flag" (list "runtime-class" .) }}
{{- end }}
{{- if not (kindIs "invalid" $own.sandboxRuntimeClasses) }}
- {{ printf "--sandbox-runtime-classes=%s" (join "," $own.sandboxRuntimeClasses) | quote }}
{{- end }}
{{- include "sluice.claimsInFlag" . }}
{{- range $own.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
