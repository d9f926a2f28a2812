{{/*
SELinux. Pods mount the library, ld.so.preload and the sockets from folders of the node. A confined process (container_t) may
not read the labels that these folders inherit, and glibc ignores an ld.so.preload that it cannot read.
*/}}

{{/* By default a domain that SELinux does not confine, as other agents of nodes have it. New files have its level: s0 is readable for every pod. */}}
{{- define "sluice.seLinuxOptions" -}}
type: {{ .Values.nodeAgent.seLinux.type }}
level: s0
{{- end }}

{{/* Labels the folders before the agent starts. New files inherit the type of their folder. */}}
{{- define "sluice.seLinuxStep" -}}
{{- $image := .Values.nodeAgent.seLinux.image -}}
- name: label-folders
  image: {{ include "sluice.imageOf" (dict "root" . "image" $image "tag" "") }}
  imagePullPolicy: {{ $image.pullPolicy | default .Values.image.pullPolicy }}
  command: [chcon, --recursive, "system_u:object_r:{{ .Values.nodeAgent.seLinux.fileType }}:s0", /host/library, /host/sockets]
  securityContext:
    runAsUser: 0
    runAsGroup: 0
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: { drop: [ALL] }
    seccompProfile: { type: RuntimeDefault }
    seLinuxOptions: {{- include "sluice.seLinuxOptions" . | nindent 6 }}
  volumeMounts:
    - { name: library, mountPath: /host/library }
    - { name: sockets, mountPath: /host/sockets }
{{- end }}
